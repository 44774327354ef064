"""The coordinator of a fit over the network: it answers the calls of `Line`."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import logging
import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from http import HTTPStatus
from pathlib import Path

from aiohttp import web

from dplda.federated._line import MAX_REASON, PROCESS, RETRY_SECONDS, WAIT_SECONDS
from dplda.federated._plan import Plan
from dplda.federated._secure_sum import SETUP, Adder
from dplda.leaf._checks import check_integer
from dplda.leaf._files import PUBLIC, write_atomically

log = logging.getLogger("dplda.federated")

# time in which a live process calls again, even if it had to wait, and hears the reply
GRACE_SECONDS = 2 * RETRY_SECONDS


@dataclass(frozen=True)
class Progress:
    """What a coordinator has done so far, and continues from; all of it is public.

    It is written before a reply is given. A killed coordinator loses only messages,
    which the parties send again.
    """

    plan: str  # digest of the plan, in hexadecimal digits
    number: int = 0  # of replies
    present: tuple[int, ...] = ()  # parties that are in the fit
    processes: tuple[str, ...] = ()  # of each party, as in `PROCESS`
    reply: bytes = b""  # the last one; empty: the parties have no more to say

    @property
    def is_over(self) -> bool:
        """Whether the fit has ended with a model."""
        return self.number > 0 and not self.reply

    @classmethod
    def read(cls, path: Path, plan: Plan) -> Progress:
        """The progress of a plan in a file; without a file, that of a new fit."""
        if not path.exists():
            return cls(plan.digest.hex())
        try:
            fields = json.loads(path.read_bytes())
            found = cls(
                plan=fields["plan"],
                number=check_integer("number", fields["number"], 0),
                present=tuple(fields["present"]),
                processes=tuple(map(str, fields["processes"])),
                reply=base64.b64decode(fields["reply"], validate=True),
            )
            if not {*found.present} <= {*range(len(plan.parties))}:
                raise ValueError("it names parties that the plan does not have")
        except (ValueError, TypeError, KeyError, binascii.Error) as error:
            raise ValueError(
                f"{path} is not the progress of a coordinator; remove it to begin "
                "anew, or give another --state"
            ) from error
        if found.plan != plan.digest.hex():
            raise ValueError(
                f"{path} is the progress of another plan; give another --state"
            )
        if found.is_over:
            raise ValueError(
                "the fit of this plan has ended with a model; for another fit, make a "
                f"plan of its own (or remove {path}, to run this one again)"
            )
        return found

    def write(self, path: Path) -> None:
        """Write the file, so that it survives a power cut."""
        reply = base64.b64encode(self.reply).decode()
        text = json.dumps({**asdict(self), "reply": reply})
        write_atomically(path, text.encode(), permissions=PUBLIC)


class Coordinator:
    """The coordinator's side: it takes a message of each party, and replies to each.

    `certificates` are the parties' certificates in the order of their numbers; no
    others are admitted. A message of more than `max_bytes` is refused. A party that
    does not send its message within `timeout` seconds is lost; the first messages have
    `start_timeout` seconds. With a file `state`, the coordinator continues from
    `progress`, and writes its further progress to the file.
    """

    def __init__(
        self,
        adder: Adder,
        certificates: Iterable[bytes],
        max_bytes: int,
        timeout: float,
        *,
        start_timeout: float | None = None,
        state: Path | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._adder = adder
        self._max_bytes = max_bytes
        self._timeout = timeout
        self._start_timeout = timeout if start_timeout is None else start_timeout
        self._parties = {certificate: i for i, certificate in enumerate(certificates)}
        self._state = state
        self._plan = "" if progress is None else progress.plan
        self._number = 0  # of the round
        self._reply = b""  # of the round before
        self._processes = dict[int, str]()  # by party: digits of the one in the fit
        if progress is not None and progress.number:
            self._number = progress.number
            self._reply = progress.reply
            self._processes = {i: p for i, p in enumerate(progress.processes) if p}
            adder.go_on(progress.number, progress.present)
        self._messages = dict[int, bytes]()  # of this round, by party
        self._calls = dict[int, asyncio.Transport]()  # the one call of each party
        self._told = set[int]()  # parties that have left, or know why the fit is over
        self._left = set[int]()  # parties that have ended, which are not waited for
        self._end = ""  # why the fit is over
        self._news = asyncio.Condition()

    @asynccontextmanager
    async def listening(
        self, host: str, port: int, tls: ssl.SSLContext
    ) -> AsyncIterator[int]:
        """Let parties call until the end of the ``with`` block; yields the port."""
        app = web.Application(client_max_size=self._max_bytes)
        for method in ("PUT", "GET", "DELETE"):
            app.router.add_route(method, "/{number:[0-9]{1,9}}", self._call)
        runner = web.AppRunner(
            app, access_log=None, lingering_time=0.0, shutdown_timeout=1.0
        )
        await runner.setup()
        loop = asyncio.get_running_loop()

        def connection() -> asyncio.BaseProtocol:
            assert runner.server is not None
            line = runner.server()  # for one call: nobody can hold many calls for long
            loop.call_later(self._timeout + WAIT_SECONDS, line.force_close)
            return line

        listener = await loop.create_server(
            connection,
            host,
            port,
            ssl=tls,
            backlog=1024,
        )
        try:
            yield listener.sockets[0].getsockname()[1]
        finally:
            listener.close()
            await runner.cleanup()

    async def add_up(self) -> None:
        """Take messages and give replies, until the parties have no more to say.

        An error of the sum ends the fit, and the parties are told. Anything else that
        ends the coordinator leaves its state, from which it can be started again.
        """
        try:
            while not self._end:
                await self._round()
        except ConnectionError as error:
            self._end = str(error)
            if self._state is not None:
                self._state.unlink(missing_ok=True)
            await self._until(
                lambda: self._messages.keys() <= self._told, GRACE_SECONDS
            )
            raise

    async def _round(self) -> None:
        """Take a message of each party, and make the reply to them."""
        adder = self._adder
        timeout = self._timeout if self._number else self._start_timeout

        def is_whole() -> bool:
            awaited = adder.present - self._left or adder.present
            return awaited <= self._messages.keys()

        await self._until(is_whole, timeout)
        silent = adder.present - self._messages.keys()
        if silent:
            names = ", ".join(adder.names[party] for party in sorted(silent))
            why = "has ended" if silent <= self._left else f"silent for {timeout:g} s"
            log.warning("no message of %s: %s", names, why)
        reply = adder.reply(self._messages)
        if self._state is not None:
            processes = [self._processes.get(i, "") for i in range(len(adder.names))]
            progress = Progress(
                self._plan,
                self._number + 1,
                tuple(sorted(adder.present)),
                tuple(processes),
                reply,
            )
            progress.write(self._state)
        self._reply = reply
        self._number += 1
        self._messages = {}
        log.info("reply %d, to %d parties", self._number, len(adder.present))
        if not reply:
            self._end = "all parties have the model"
            await self._until(lambda: True, GRACE_SECONDS)

    async def _until(self, condition: Callable[[], bool], seconds: float) -> None:
        """Tell all calls what is new, and wait until a condition holds or times out."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds), self._news:
                self._news.notify_all()
                await self._news.wait_for(condition)

    async def _call(self, request: web.Request) -> web.Response:
        party = self._party_of(request)
        call = request.transport
        # the handshake also admits certificates that a party's certificate has signed
        if party is None or call is None:
            raise web.HTTPForbidden
        process = request.headers.get(PROCESS, "")[:MAX_REASON]
        if not await self._admits(party, process):
            raise web.HTTPConflict(
                text="another process of this party is in the fit, and it goes on"
            )
        before = self._calls.get(party)
        self._calls[party] = call
        if before is not None:  # a party that calls again has given up its last call
            before.abort()
        try:
            return await self._answer(request, party, call)
        except ConnectionError:  # the line broke: nobody hears an answer
            return web.Response(status=HTTPStatus.NO_CONTENT)
        finally:
            if self._calls.get(party) is call:
                del self._calls[party]

    async def _answer(
        self, request: web.Request, party: int, call: asyncio.Transport
    ) -> web.Response:
        """The answer to a call of a party."""
        number = int(request.match_info["number"])

        def is_its_turn() -> bool:
            is_in = party in self._adder.present and not self._end
            return is_in and number == self._number

        is_new = is_its_turn() and party not in self._messages
        if is_new and request.method == "GET":
            raise web.HTTPNotFound(text="the message is not here; give it again")
        if is_new:  # no other body is read
            message = await request.read()
            if is_its_turn():
                self._messages.setdefault(party, message)
        is_last = request.method == "DELETE"
        if is_last:  # also while a reply is on its way to it
            self._told.add(party)
            self._left.add(party)

        def is_answered() -> bool:
            return is_last or not is_its_turn() or self._calls.get(party) is not call

        await self._until(is_answered, WAIT_SECONDS)
        if number == self._number - 1:
            return web.Response(body=self._reply)
        if is_its_turn():
            return web.Response(status=HTTPStatus.NO_CONTENT)
        self._told.add(party)
        async with self._news:
            self._news.notify_all()
        raise web.HTTPGone(text=self._end or "it goes on without this party")

    async def _admits(self, party: int, process: str) -> bool:
        """Whether this process of a party is the one in the fit.

        Keys are in the memory of one process. Before the keys are handed out, a
        restarted process replaces the first one. After that, a restarted process ends
        the setup, which cannot go on; a fit that has begun goes on with its first
        process.
        """
        if self._processes.setdefault(party, process) == process:
            return True
        await self._until(lambda: self._is_calling(party), GRACE_SECONDS)
        if self._is_calling(party) or self._number >= SETUP or self._end:
            return False
        if self._number == 0:
            self._processes[party] = process
            self._messages.pop(party, None)
            self._left.discard(party)
            return True
        self._messages[party] = b"it was started again"
        await self._until(lambda: bool(self._end), WAIT_SECONDS)
        return False

    def _is_calling(self, party: int) -> bool:
        """Whether a call of the party's process is open."""
        call = self._calls.get(party)
        return call is not None and not call.is_closing()

    def _party_of(self, request: web.Request) -> int | None:
        """The party whose certificate the TLS handshake has shown."""
        if request.transport is None:
            return None
        tls = request.transport.get_extra_info("ssl_object")
        if tls is None:
            return None
        return self._parties.get(tls.getpeercert(binary_form=True))
