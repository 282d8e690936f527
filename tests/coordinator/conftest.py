import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rerecord", action="store_true", help="write what the coordinator does now into the transcripts"
    )
