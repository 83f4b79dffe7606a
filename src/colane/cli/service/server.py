"""`colane server`: the scheduler alone."""

from __future__ import annotations

import typer

from colane.cli.errors import FailureError, MisuseError
from colane.cli.service import core_options, options
from colane.cli.service.limits import LimitsOption, SeeOption, quotas
from colane.cli.service.tls import TlsCert, TlsKey, tls_files
from colane.model.lane import ShareBetween
from colane.model.see import See


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("server", epilog="Example: [bold]colane server --policy fifo --state /var/lib/colane[/bold]")(server)


def server(  # noqa: PLR0913, PLR0917 - a command line option is a parameter
    policy: options.Policy = "colane",
    policy_budget: options.PolicyBudget = None,
    host: options.Host = "127.0.0.1",
    port: options.Port = options.DEFAULT_PORT,
    state: options.State = None,
    token_file: options.TokenFile = None,
    keep_finished: options.KeepFinished = options.KEEP_FINISHED,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    lease: options.LeaseOption = options.LEASE,
    limits: LimitsOption = None,
    see: SeeOption = See.ALL,
    share_between: options.ShareOption = ShareBetween.ALL,
    turns: options.TurnsOption = None,
    quantum: options.QuantumOption = None,
    guard: options.GuardOption = options.GUARD,
    guard_after: options.GuardAfterOption = options.GUARD_AFTER,
    memory_factors: options.FactorsOption = options.FACTORS,
    core_tuner: core_options.CoreTunerOption = core_options.CoreTunerChoice.OFF,
    core_window: core_options.CoreWindowOption = core_options.CORE_WINDOW,
    contention: core_options.ContentionOption = core_options.CONTENTION,
    with_parent: options.WithParent = False,
) -> None:
    """Run the scheduler alone; agents on this or other machines join it.

    It listens on this machine only, unless --host and a token say otherwise. Ctrl-C stops it; jobs that run go on,
    and nothing is forgotten.
    """
    from colane.scheduling.registry import UnknownPolicyError  # noqa: PLC0415 - the scheduler's imports take long
    from colane.server.main import ServerConfig, ServerError, run_server  # noqa: PLC0415
    from colane.server.store.retention import parse_retention  # noqa: PLC0415
    from colane.server.store.store import StoreError  # noqa: PLC0415

    options.log_to_stderr("server")
    if with_parent:
        options.stop_with_parent()
    kept = parse_retention(options.retention(keep_finished))
    core = options.Sharing(
        share_between, turns, quantum, guard, guard_after, memory_factors, core_tuner, core_window, contention
    ).core_config()
    config = ServerConfig(
        state_dir=options.state_dir(state),
        host=host,
        port=port,
        policy=policy,
        policy_budget_s=options.policy_budget_s([policy], policy_budget),
        token=options.token(token_file),
        tls=tls_files(tls_cert, tls_key),
        keep_finished=kept,
        node_timeout_s=options.lease_s(lease),
        quotas=quotas(limits),
        see=see,
        core=core,
    )
    try:
        run_server(config)
    except UnknownPolicyError as error:
        raise MisuseError(f"--{error}") from error
    except ServerError as error:
        asked_wrongly = str(error).startswith(("host:", "token:", "tls-cert:"))
        raise (MisuseError if asked_wrongly else FailureError)(f"--{error}") from error
    except StoreError as error:
        raise FailureError(f"the store in {config.state_dir} cannot be used: {error}") from error
