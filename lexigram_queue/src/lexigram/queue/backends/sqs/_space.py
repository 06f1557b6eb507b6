"""The queues of an account: found, made, written, read and emptied."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import cache
from typing import Any, Final

import anyio
from attrs import define, field

from lexigram.queue.backends.libraries import require_library
from lexigram.queue.backends.sqs._errors import (
    EXTRA,
    client_error,
    code_of,
    hint_for,
    is_gone,
    make_gone_error,
)
from lexigram.queue.backends.sqs._wire import (
    BATCH,
    Json,
    Received,
    batches,
    from_tags,
    groups_prefix,
    is_for_patterns,
    read_received,
    topic_mark,
)
from lexigram.queue.config import SQSDriverConfig
from lexigram.queue.errors import SQSQueueError
from lexigram.queue.runtime.topics import matcher

DELETED_FOR: Final = 60.0  # seconds until a queue of the same name can be made again
LOOK: Final = 1  # seconds to wait for messages in a queue that may be empty
HOLD: Final = 60  # seconds dead letters are held while they are looked through
ATTEMPTS: Final = 4  # of a request that was throttled, or whose entries were
CONNECTIONS: Final = 100
SETTLED_AT_ONCE: Final = 20  # requests that acknowledge, extend or release: ten messages each
LONGEST_POLL: Final = 20  # seconds, of the service
WANTED: Final = ["ApproximateReceiveCount", "SentTimestamp", "MessageGroupId"]


@define(eq=False, kw_only=True)
class Space:
    """Both clients, what is known of the account, and what can be done with its queues."""

    asking: Any
    reading: Any  # gives up at once, and waits for long polls
    stack: AsyncExitStack
    prefix: str
    refresh: float
    timeout: float
    urls: dict[str, str] = field(factory=dict[str, str])
    names: dict[str, tuple[str, str] | None] = field(factory=dict[str, tuple[str, str] | None])
    rooms: dict[str, int] = field(factory=dict[str, int])
    listed: frozenset[str] = frozenset()
    listed_until: float = 0.0
    listing: asyncio.Lock = field(factory=asyncio.Lock)
    settling: asyncio.Semaphore = field(factory=lambda: asyncio.Semaphore(SETTLED_AT_ONCE))

    async def close(self) -> None:
        """Close both clients."""
        with anyio.move_on_after(10, shield=True):
            await self.stack.aclose()

    async def create(self, queue: str, tags: Mapping[str, str]) -> None:
        """Make a queue; one that was dropped just now is waited for."""
        attributes = {"FifoQueue": "true"} if queue.endswith(".fifo") else {}
        with anyio.fail_after(DELETED_FOR + self.timeout):
            while True:
                try:
                    made = await self.asking.create_queue(
                        QueueName=queue, Attributes=attributes, tags=dict(tags)
                    )
                except client_error() as error:
                    if "QueueDeletedRecently" not in code_of(error):
                        raise
                    await anyio.sleep(1)  # it was dropped less than a minute ago
                else:
                    self.urls[queue] = made["QueueUrl"]
                    return

    async def list_groups(self) -> frozenset[str]:
        """Ask which groups there are, and remember it."""
        begun, urls = asyncio.get_running_loop().time(), list[str]()
        asked: Json = {"QueueNamePrefix": groups_prefix(self.prefix), "MaxResults": 1000}
        while True:
            page = await self.asking.list_queues(**asked)
            urls += page.get("QueueUrls", [])
            if not page.get("NextToken"):
                break
            asked["NextToken"] = page["NextToken"]
        names = {url.rsplit("/", 1)[-1]: url for url in urls}
        self.urls.update(names)
        self.listed, self.listed_until = frozenset(names), begun + self.refresh
        return self.listed

    async def get_groups(self) -> frozenset[str]:
        """The list, not older than ``groups_refresh``; those who ask at once share an answer."""
        async with self.listing:
            if self.listed_until > asyncio.get_running_loop().time():
                return self.listed
            return await self.list_groups()

    async def names_of(self, queue: str) -> tuple[str, str] | None:
        """Topic and group of a queue. Never change, so they are asked for once."""
        if queue not in self.names:
            url = self.urls[queue]
            answer = await self.unless_gone(self.asking.list_queue_tags(QueueUrl=url))
            if answer is None:
                return None
            self.names[queue] = from_tags(answer.get("Tags", {}))
        return self.names[queue]

    def plain_queues(self, queues: frozenset[str], topic: str) -> list[str]:
        """Of these, the queues of groups that name the topic."""
        begin = groups_prefix(self.prefix) + topic_mark(topic)
        return sorted(queue for queue in queues if queue.startswith(begin))

    async def queues_for(self, queues: frozenset[str], topic: str) -> list[str]:
        """The queues of all groups that get what is sent to a topic."""
        found = self.plain_queues(queues, topic)
        for queue in queues:
            if is_for_patterns(queue, self.prefix):
                names = await self.names_of(queue)
                if names is not None and matcher(names[0])(topic):
                    found.append(queue)
        return found

    async def url_of(self, queue: str) -> str | None:
        """Where a queue is, or None when it is not."""
        if queue not in self.urls:
            answer = await self.unless_gone(self.asking.get_queue_url(QueueName=queue))
            if answer is None:
                return None
            self.urls[queue] = answer["QueueUrl"]
        return self.urls[queue]

    async def facts_of(self, queue: str) -> Mapping[str, str] | None:
        """The attributes of a queue, or None when there is none."""
        url = await self.url_of(queue)
        if url is None:
            return None
        asked = self.asking.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])
        answer = await self.unless_gone(asked)
        if answer is None:
            self.urls.pop(queue, None)
            return None
        attributes: Mapping[str, str] = answer["Attributes"]
        return attributes

    async def unless_gone(self, asked: Awaitable[Any]) -> Any:
        try:
            return await asked
        except client_error() as error:
            if not is_gone(error):
                raise
            return None

    async def send(self, queue: str, outs: Sequence[Json]) -> None:
        """Send entries in order; returns when SQS confirmed all of them."""
        url = await self.url_of(queue)
        if url is None:
            raise make_gone_error(queue)
        for batch in batches(outs):
            left = [{"Id": str(number), **made} for number, made in enumerate(batch)]
            failed: dict[str, Json] = {}
            for attempt in range(ATTEMPTS):
                try:
                    answer = await self.asking.send_message_batch(QueueUrl=url, Entries=left)
                except client_error() as error:
                    if is_gone(error):
                        raise make_gone_error(queue) from error
                    raise
                failed = {str(one["Id"]): one for one in answer.get("Failed", [])}
                left = [made for made in left if made["Id"] in failed]
                if not left:
                    break
                if any(one.get("SenderFault") for one in failed.values()):
                    raise self._make_refusal(next(iter(failed.values())))
                await anyio.sleep(0.1 * 2**attempt)
            else:
                raise self._make_refusal(next(iter(failed.values())))

    def _make_refusal(self, failed: Mapping[str, Any]) -> SQSQueueError:
        code = str(failed.get("Code"))
        return SQSQueueError(
            f"SQS did not take a message: {failed.get('Message') or code}",
            details={"code": code},
            hint=hint_for(code, None),
        )

    async def take(self, queue: str, url: str, number: int, hold: int, wait: int) -> list[Received]:
        try:
            answer = await self.reading.receive_message(
                QueueUrl=url,
                MaxNumberOfMessages=number,
                VisibilityTimeout=hold,
                WaitTimeSeconds=wait,
                MessageAttributeNames=["All"],
                MessageSystemAttributeNames=WANTED,
            )
        except client_error() as error:
            if is_gone(error):
                self.urls.pop(queue, None)
            raise
        return [read_received(raw) for raw in answer.get("Messages", [])]

    async def delete(self, queue: str, handles: Sequence[str]) -> None:
        """Delete by receipt; an expired one belongs to another receiver by now."""

        async def ask(url: str, numbers: Mapping[str, str]) -> Any:
            entries = [{"Id": one, "ReceiptHandle": handle} for one, handle in numbers.items()]
            return await self.asking.delete_message_batch(QueueUrl=url, Entries=entries)

        await self._by_tens(queue, handles, ask)

    async def hide(self, queue: str, seconds: Mapping[str, int]) -> set[str]:
        """Hide by receipt for so many seconds; returns those that are lost."""

        async def ask(url: str, numbers: Mapping[str, str]) -> Any:
            entries = [
                {"Id": one, "ReceiptHandle": handle, "VisibilityTimeout": seconds[handle]}
                for one, handle in numbers.items()
            ]
            return await self.asking.change_message_visibility_batch(QueueUrl=url, Entries=entries)

        return await self._by_tens(queue, list(seconds), ask)

    async def _by_tens(
        self,
        queue: str,
        handles: Sequence[str],
        ask: Callable[[str, Mapping[str, str]], Awaitable[Any]],
    ) -> set[str]:
        """Requests about receipts; permanently refused ones are returned, throttled ones retried."""
        url = await self.url_of(queue)
        if url is None:
            return set(handles)  # the group was dropped
        refused = set[str]()

        async def settle(left: dict[str, str]) -> None:
            failed: list[Json] = []
            for attempt in range(ATTEMPTS):
                async with self.settling:
                    answer = await self.unless_gone(ask(url, left))
                failed = list(answer.get("Failed", [])) if answer else []
                final = [one for one in failed if one.get("SenderFault")]
                refused.update(left[one["Id"]] for one in final)
                left = {one["Id"]: left[one["Id"]] for one in failed if one not in final}
                if not left:
                    return
                await anyio.sleep(0.1 * 2**attempt)
            raise self._make_refusal(failed[0])

        ends = await asyncio.gather(
            *(
                settle({str(at): one for at, one in enumerate(handles[start : start + BATCH])})
                for start in range(0, len(handles), BATCH)
            ),
            return_exceptions=True,
        )
        for error in ends:
            if error is not None:
                raise error
        return refused

    async def drain(self, queue: str) -> AsyncIterator[list[Received]]:
        """All that is visible, page by page, held for a minute."""
        facts, taken = await self.facts_of(queue), 0
        if facts is None:
            return
        expected, url = int(facts["ApproximateNumberOfMessages"]), self.urls[queue]
        while True:
            # Its count is a moment old: a queue said to be empty is waited for, too.
            wait = LOOK if taken < max(1, expected) else 0
            page = await self.take(queue, url, BATCH, HOLD, wait)
            if not page:
                return
            taken += len(page)
            yield page

    async def release(self, queue: str, handles: Sequence[str]) -> None:
        """Make messages visible again that were only looked at."""
        with anyio.move_on_after(self.timeout, shield=True):
            await self.hide(queue, dict.fromkeys(handles, 0))


async def open_space(config: SQSDriverConfig, prefix: str, endpoint_url: str | None) -> Space:
    """Make both clients; what the client raises is passed on."""
    require_library("aiobotocore.session", extra=EXTRA)
    made = require_library("aiobotocore.config", extra=EXTRA).AioConfig

    def options(attempts: int, patience: float) -> Json:
        return {
            "region_name": config.region,
            "endpoint_url": endpoint_url,
            "aws_access_key_id": config.access_key_id,
            "aws_secret_access_key": config.secret_access_key,
            "config": made(
                connect_timeout=config.timeout,
                read_timeout=patience,
                max_pool_connections=CONNECTIONS,
                retries={"mode": "standard", "total_max_attempts": attempts},
            ),
        }

    # Receiving gives up at once: the runtime tries again.
    wanted = [options(ATTEMPTS, config.timeout), options(1, config.timeout + LONGEST_POLL)]
    stack = AsyncExitStack()
    try:
        session = await open_session(wanted[0])
        asking, reading = [
            await stack.enter_async_context(session.create_client("sqs", **one)) for one in wanted
        ]
    except BaseException:
        await stack.aclose()
        raise
    return Space(
        asking=asking,
        reading=reading,
        stack=stack,
        prefix=prefix,
        refresh=config.groups_refresh,
        timeout=config.timeout,
    )


@cache
def _loader() -> Any:
    """The descriptions of AWS, read once for all."""
    return require_library("botocore.loaders", extra=EXTRA).create_loader()


async def open_session(options: Mapping[str, Any]) -> Any:
    """A session that has read its files, which blocks: a client is made in a thread, for nothing."""
    session = require_library("aiobotocore.session", extra=EXTRA).get_session()
    session.register_component("data_loader", _loader())
    unused = session.create_client("sqs", **options)
    await anyio.to_thread.run_sync(asyncio.run, unused.__aenter__())
    await anyio.to_thread.run_sync(asyncio.run, unused.__aexit__(None, None, None))
    return session
