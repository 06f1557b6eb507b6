"""A place of its own on a running RabbitMQ: a vhost where rabbitmqctl may make one."""

from contextlib import contextmanager

from aiormq import connect
from tests.leftovers import rabbitmqctl
from tests.names import unique_name


@contextmanager
def own_vhost(service):
    """The URL of a new vhost; of the default one where none can be made."""
    name = unique_name()
    if rabbitmqctl("add_vhost", name) is None:
        yield f"amqp://guest:guest@{service.address}/"
        return
    try:
        rabbitmqctl("set_permissions", "-p", name, "guest", ".*", ".*", ".*")
        yield f"amqp://guest:guest@{service.address}/{name}"
    finally:
        rabbitmqctl("delete_vhost", name)


async def clear(driver):
    """Remove all a driver declared: in a vhost that is not ours nothing may stay."""
    await driver.connect()
    for topic, group in await driver.groups():
        await driver.drop(topic, group)
    await driver.close()
    connection = await connect(driver._connection._url)
    channel = await connection.channel()
    names = driver._names
    await channel.queue_delete(names.registry)
    await channel.exchange_delete(names.control)
    await channel.exchange_delete(names.exchange)
    for topic in driver._topology._topics:
        await channel.queue_delete(names.backlog(topic))
    await connection.close()
