"""Tests in the sandbox: sbx from outside of nox, the session's own Python inside."""

import nox


@nox.session(venv_params=["--no-download"])
def tests(session: nox.Session) -> None:
    python = f"{session.bin}/python"
    session.run("sbx", "run", "--profile", "build", "--", python, "-m", "unittest", "-q", "test_it", external=True)
