"""Messages between a coordinator and parties over the network: WebSockets with mutual TLS.

Both sides prove who they are in the TLS handshake, by certificates that the other side was given in
advance. The coordinator asks, a party answers, and neither side reads what the messages say:

* to a party: a number of 8 bytes, and the request; a text message says that all is over;
* to the coordinator: the number of the request, and the answer, in a binary message; or, in a text
  message, the number and the name of an error's class. The text of an error may quote documents.

One connection of a party is open at a time. A party that comes back is asked again.
"""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from dplda.leaf._files import check_kept_secret

log = logging.getLogger("dplda.federated")

HANDSHAKE_SECONDS = 10.0  # some 30 round trips of a slow line; a stranger waits no longer
IDLE_SECONDS = 10.0  # a connection that does not become a party's ends after one or two of these
HEARTBEAT_SECONDS = 120.0  # without a byte: a ping, which has half of this time for its answer
RETRY_SECONDS = 3.0  # between two calls of a party: 30 parties make 10 calls a second
END_SECONDS = 2 * RETRY_SECONDS  # to tell the parties that the federation is over
NUMBER = 8  # bytes of the number of a request
OVER = "over"
GONE = "the connection has ended"
MAX_REASON = 200  # characters of what the other side gives as a reason


class Coordinator:
    """The coordinator's side: it asks all parties, and takes one answer of each.

    `names` are the parties by their certificates, and no others are admitted. The connection of a
    party that announces an answer of more than `max_bytes` is closed before the answer is read.
    """

    def __init__(self, names: Mapping[bytes, str], max_bytes: int) -> None:
        self._names, self._max_bytes = names, max_bytes
        self._sockets: dict[str, web.WebSocketResponse] = {}  # by party
        self._in_use: set[Any] = set()  # connections of parties
        self._owed: dict[str, set[int]] = {}  # numbers of requests without an answer, by party
        self._tasks: set[asyncio.Task[None]] = set()
        self._request: Callable[[str], bytes | None] = lambda name: None
        self._number, self._is_over = 0, False
        self._answers: asyncio.Queue[tuple[str, bytes | str]] = asyncio.Queue()

    @asynccontextmanager
    async def listening(self, host: str, port: int, tls: ssl.SSLContext) -> AsyncIterator[int]:
        """Let parties call until the end of the ``with`` statement; gives the port."""
        app = web.Application()
        app.router.add_get("/", self._connection)
        runner = web.AppRunner(app, access_log=None, lingering_time=0.0, shutdown_timeout=1.0)
        await runner.setup()
        assert runner.server is not None
        listener = await asyncio.get_running_loop().create_server(
            runner.server, host, port, ssl=tls, backlog=1024,
            ssl_handshake_timeout=HANDSHAKE_SECONDS,
        )  # fmt: skip
        idle = asyncio.create_task(self._end_idle(runner.server))
        try:
            yield listener.sockets[0].getsockname()[1]
        finally:
            idle.cancel()
            listener.close()
            await runner.cleanup()

    def ask(self, request: Callable[[str], bytes | None]) -> None:
        """Send ``request(name)`` to each party, now or when it connects; None asks nothing.

        Answers to earlier requests are dropped from now on.
        """
        self._request, self._number = request, self._number + 1
        self._answers = asyncio.Queue()
        for name in self._sockets:
            self._send(name)

    async def answer(self) -> tuple[str, bytes | str]:
        """The next party that needs no more waiting, and its answer; a str is why there is none."""
        return await self._answers.get()

    async def end(self) -> None:
        """Tell the parties that the federation is over, and wait for them to hang up."""
        self._is_over, absent = True, {*self._names.values()} - {*self._sockets}
        for name in self._sockets:
            self._send(name)
        with suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                while self._sockets or absent:
                    name, _ = await self._answers.get()
                    absent.discard(name)

    def _send(self, name: str) -> None:
        if self._is_over:
            self._start(_quietly(self._sockets[name].send_str(OVER)))
            return
        data = self._request(name)
        if data is None:
            return
        self._owed[name].add(self._number)
        message = self._number.to_bytes(NUMBER, "big") + data
        self._start(_quietly(self._sockets[name].send_bytes(message)))

    def _start(self, call: Coroutine[Any, Any, None]) -> None:
        """Let a party that reads slowly keep nobody else waiting."""
        task = asyncio.create_task(call)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connection(self, request: web.Request) -> web.StreamResponse:
        name = self._name(request)
        if name is None:
            raise web.HTTPForbidden
        socket = web.WebSocketResponse(
            max_msg_size=NUMBER + self._max_bytes + 1, heartbeat=HEARTBEAT_SECONDS, compress=False
        )
        await socket.prepare(request)
        earlier = self._sockets.get(name)
        self._sockets[name], self._owed[name] = socket, set()
        self._in_use.add(request.protocol)
        log.info("party %r is connected", name)
        try:
            if earlier is not None:
                self._start(_quietly(earlier.close()))
            self._send(name)
            async for message in socket:
                if not self._take(name, message):
                    break
        finally:
            self._in_use.discard(request.protocol)
            if self._sockets.get(name) is socket:
                del self._sockets[name], self._owed[name]
                self._answers.put_nowait((name, GONE))
            await _quietly(socket.close())
        return socket

    def _take(self, name: str, message: aiohttp.WSMessage) -> bool:
        """Whether a message answers a request that was made."""
        answer: bytes | str
        if message.type == aiohttp.WSMsgType.BINARY:
            number, answer = int.from_bytes(message.data[:NUMBER], "big"), message.data[NUMBER:]
        elif message.type == aiohttp.WSMsgType.TEXT:
            digits, _, reason = message.data.partition(" ")
            number = int(digits) if re.fullmatch("[0-9]{1,18}", digits) else -1
            answer = f"its error was {reason[:MAX_REASON]!r}"
        else:
            return False
        owed = self._owed.get(name, set())
        if number not in owed:
            return False
        owed.remove(number)
        if number == self._number:
            self._answers.put_nowait((name, answer))
        return True

    def _name(self, request: web.Request) -> str | None:
        """Who calls: the handshake also admits what a party's certificate has signed."""
        tls = request.transport and request.transport.get_extra_info("ssl_object")
        return self._names.get(tls.getpeercert(binary_form=True) or b"") if tls else None

    async def _end_idle(self, server: web.Server) -> None:
        """End connections that carry no party's messages, so that nobody holds many of them."""
        seen: set[Any] = set()
        while True:
            await asyncio.sleep(IDLE_SECONDS)
            idle = {*server.connections} - self._in_use
            for connection in idle & seen:
                connection.force_close()
            seen = idle


async def _quietly(call: Awaitable[Any]) -> None:
    """Wait for a call on a connection; one that has broken is noticed where it is read."""
    try:
        await call
    except (OSError, aiohttp.ClientError):
        log.debug("a connection has broken", exc_info=True)


async def take_part(
    address: str, answer: Callable[[bytes], bytes], *, max_bytes: int, tls: ssl.SSLContext
) -> None:
    """Answer the coordinator at ``host:port`` until it says that the federation is over.

    ``answer(request)`` is called in another thread, one call at a time. What it has begun is
    finished, because a party has paid for it.
    """
    limits = aiohttp.ClientTimeout(total=None, sock_connect=HANDSHAKE_SECONDS)
    is_connected = True
    async with aiohttp.ClientSession(timeout=limits) as session:
        while True:
            try:
                async with session.ws_connect(
                    f"https://{address}/", ssl=tls, max_msg_size=NUMBER + max_bytes + 1,
                    heartbeat=HEARTBEAT_SECONDS,
                ) as socket:  # fmt: skip
                    log.info("connected to %s", address)
                    is_connected = True
                    if await _answer_all(socket, answer):
                        log.info("the federation is over")
                        return
            except (OSError, ValueError, aiohttp.ClientError) as error:
                if is_connected:
                    log.info(
                        "a call to the coordinator failed (%s): it is not running, or one side "
                        "does not know the other's certificate; trying again every %g s",
                        ascii(error)[:MAX_REASON],  # it may quote what the other side sent
                        RETRY_SECONDS,
                    )
                is_connected = False
            await asyncio.sleep(RETRY_SECONDS)


async def _answer_all(
    socket: aiohttp.ClientWebSocketResponse, answer: Callable[[bytes], bytes]
) -> bool:
    """Answer the newest request, and then the next one, until the connection or all is over."""
    newest: asyncio.Queue[bytes] = asyncio.Queue(1)

    async def work() -> None:
        while True:
            message = await newest.get()
            try:
                reply = await asyncio.to_thread(answer, message[NUMBER:])
            except Exception as error:
                why = error.__cause__ or error
                known = isinstance(why, OSError | ValueError)
                log.error("this party takes no part in the round: %s", why, exc_info=not known)
                number = int.from_bytes(message[:NUMBER], "big")
                await _quietly(socket.send_str(f"{number} {type(error).__name__}"))
            else:
                await _quietly(socket.send_bytes(message[:NUMBER] + reply))

    worker = asyncio.create_task(work())
    try:
        async for message in socket:  # goes on during the work: it answers pings
            if message.type != aiohttp.WSMsgType.BINARY:
                return message.type == aiohttp.WSMsgType.TEXT and message.data == OVER
            if newest.full():
                newest.get_nowait()
            newest.put_nowait(message.data)
    finally:
        worker.cancel()
    return False


# ---------------------------------------------------------------- TLS


def certificate_of(path: Path) -> bytes:
    """The first certificate of a PEM file, in binary form."""
    pem = re.search(
        rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", path.read_bytes(), re.DOTALL
    )
    try:
        data = ssl.PEM_cert_to_DER_cert(pem[0].decode("ascii") if pem else "")
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=data)
    except ValueError as error:  # an SSLError is one
        raise ValueError(f"{path} holds no certificate (PEM)") from error
    return data


def tls_context(protocol: int, certificate: Path, key: Path, known: list[bytes]) -> ssl.SSLContext:
    """TLS 1.3 that shows an own certificate, and asks the other side for one of the known ones.

    A certificate that was handed over in person is trusted without its authority. The known
    certificate of a coordinator may also be that of its authority.
    """
    context = ssl.SSLContext(protocol)  # a client also checks the coordinator's name
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    for other in known:
        context.load_verify_locations(cadata=other)
    certificate_of(certificate)
    with key.open("rb"):  # the error of a missing file names it
        pass
    try:
        context.load_cert_chain(certificate, key, password="")  # never asks at the terminal
    except (ssl.SSLError, ValueError) as error:
        raise ValueError(
            f"{key} holds no key of the certificate {certificate} that can be read without a "
            "password (PEM)"
        ) from error
    check_kept_secret(key)
    return context
