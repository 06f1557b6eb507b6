"""The page that helps to choose says what the drivers declare."""

import broker_table


def test_the_table_of_the_page_is_what_the_drivers_declare():
    page = broker_table.PAGE.read_text(encoding="utf-8")
    written = broker_table.with_table(page, broker_table.table(broker_table.declared()))
    assert page == written, "python tools/broker_table.py writes it"


def test_every_driver_is_in_the_table_with_its_abilities():
    drivers = broker_table.declared()
    assert {"memory", "sql", "redis", "rabbitmq", "nats"} <= set(drivers)
    lines = broker_table.table(drivers).splitlines()
    assert all(f"`{name}`" in lines[0] for name in drivers)
    [ordering] = [line for line in lines if line.startswith("| `ordering` ")]
    assert ordering.count("yes") == sum("ordering" in found for found in drivers.values())
