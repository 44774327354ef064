"""``dplda federation coordinator``: add up what the parties of a plan send."""

from __future__ import annotations

import argparse
import asyncio
import logging
import ssl
import sys

# loads a name at its first use: options and --help need nothing of it
from dplda.cli._options import check_output
from dplda.leaf._checks import check_integer, check_number

log = logging.getLogger("dplda.federated")
LOG = "%(asctime)s %(name)s: %(message)s"


def add_up(options: argparse.Namespace) -> None:
    """Pass on keys and sums until the parties have their model."""
    from dplda.federated._certificates import certificate_of, check_dates, tls_context
    from dplda.federated._coordinator import Coordinator, Progress
    from dplda.federated._plan import Plan
    from dplda.federated._secure_sum import Adder

    check_timeouts(options)
    check_integer("--port", options.port, 0, 65535)
    plan = Plan.read(options.plan)
    plan.check_dates()
    names = plan.certificates()
    tls = tls_context(
        ssl.PROTOCOL_TLS_SERVER, options.certificate, options.key, [*names]
    )
    check_dates(certificate_of(options.certificate), str(options.certificate))
    state = options.state or options.plan.with_name(f"{options.plan.name}.state")
    check_output(state, options.plan, options.certificate, options.key)
    progress = Progress.read(state, plan)

    async def run() -> None:
        adder = Adder(plan.terms(), [*plan.parties])
        network = Coordinator(
            adder,
            names,
            plan.max_bytes,
            options.round_timeout,
            start_timeout=options.start_timeout,
            state=state,
            progress=progress,
        )
        async with network.listening(options.host, options.port, tls) as port:
            log.info(
                "listening at %s:%d for plan %s", options.host, port, plan.digest.hex()
            )
            if progress.number:
                log.info("going on after reply %d, from %s", progress.number, state)
            await network.add_up()

    log_progress()
    try:
        asyncio.run(run())
    except KeyboardInterrupt:
        print("To go on with the fit, start the same command again.", file=sys.stderr)
        raise


def log_progress() -> None:
    """Log what happens between coordinator and parties, and nothing else."""
    logging.basicConfig(format=LOG)
    log.setLevel(logging.INFO)


def check_timeouts(options: argparse.Namespace) -> None:
    """Refuse times that are not positive numbers."""
    for name in ("round_timeout", "start_timeout"):
        option = f"--{name.replace('_', '-')}"
        check_number(option, getattr(options, name), 0, 1e9, closed="right")
