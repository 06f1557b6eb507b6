"""A place of its own on a running RabbitMQ: a vhost where rabbitmqctl may make one."""

import os
import secrets
import shutil
import subprocess
import time
from contextlib import contextmanager

from aiormq import connect

LEFT_OVER_SECONDS = 3600  # a run that was killed cleans nothing up; another one does, later


def rabbitmqctl(*arguments):
    """What it says, or None where it cannot be used."""
    command = shutil.which("rabbitmqctl")
    if command is None:
        return None
    done = subprocess.run([command, "-q", *arguments], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


@contextmanager
def own_vhost(service):
    """The URL of a new vhost; of the default one where none can be made."""
    name = f"lex-{int(time.time())}-{os.getpid()}-{secrets.token_hex(4)}"
    if rabbitmqctl("add_vhost", name) is None:
        yield f"amqp://guest:guest@{service.address}/"
        return
    try:
        rabbitmqctl("set_permissions", "-p", name, "guest", ".*", ".*", ".*")
        yield f"amqp://guest:guest@{service.address}/{name}"
    finally:
        rabbitmqctl("delete_vhost", name)
        for other in (rabbitmqctl("list_vhosts", "name") or "").split():
            made = other.split("-")[1] if other.startswith("lex-") and other.count("-") >= 3 else ""
            if made.isdigit() and time.time() - int(made) > LEFT_OVER_SECONDS:
                rabbitmqctl("delete_vhost", other)


async def clear(driver):
    """Remove all a driver declared: in a vhost that is not ours nothing may stay."""
    await driver.connect()
    for topic, group in await driver.groups():
        await driver.drop(topic, group)
    await driver.close()
    connection = await connect(driver._url)
    channel = await connection.channel()
    names = driver._names
    await channel.queue_delete(names.registry)
    await channel.exchange_delete(names.control)
    await channel.exchange_delete(names.exchange)
    for topic in driver._topics:
        await channel.queue_delete(names.backlog(topic))
    await connection.close()
