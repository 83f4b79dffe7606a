"""What starts a scheduler's agents: `local` those of this machine (`colane up`); Ray and Slurm have their room here."""


class EngineError(Exception):
    """What was to be started does not run; the message is one line that names the fix.

    Attributes:
        exit_code: Of the process that failed, where one did; its own words on standard error are then the message.
    """

    def __init__(self, message: str = "", exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code
