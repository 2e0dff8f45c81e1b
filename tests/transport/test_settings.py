"""Where settings come from, which wins, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dlcp.errors import AuthenticationError, SettingsError
from dlcp.transport import Endpoint, Settings
from dlcp.transport.settings import read_key_file

KEY = bytes(range(32))


@pytest.fixture
def config(tmp_path: Path) -> Any:
    def write(text: str) -> dict[str, str]:
        path = tmp_path / "dlcp.toml"
        path.write_text(text)
        return {"DLCP_CONFIG": str(path)}

    return write


def test_default_is_loopback_without_a_key() -> None:
    settings = Settings.load(environ={})
    assert settings == Settings()
    assert settings.bind_host is None
    assert settings.job_key() is None


def test_precedence_is_argument_environment_file_default(config: Any) -> None:
    environ = config("[transport]\npaths = 2\nport = 7001\njob = 5\n") | {
        "DLCP_PATHS": "3",
        "DLCP_PORT": "7002",
    }
    settings = Settings.load(environ=environ, paths=4)
    assert (settings.paths, settings.port, settings.job, settings.run_packets) == (4, 7002, 5, 16)


def test_environment_reads_every_type() -> None:
    settings = Settings.load(
        environ={
            "DLCP_PEER_TIMEOUT_S": "2.5",
            "DLCP_ENCRYPT": "no",
            "DLCP_INTERFACE": "eth0",
            "DLCP_MAX_DATAGRAM_BYTES": "auto",
            "DLCP_DSCP": "0,8,16,24,32,40,48,46",
            "DLCP_SEGMENTATION_OFFLOAD": "0",
            "DLCP_LINE_RATE_BPS": "25000000000",
        }
    )
    assert settings.peer_timeout_s == 2.5
    assert settings.interface == "eth0"
    assert settings.max_datagram_bytes is None
    assert settings.dscp[7] == 46
    assert not settings.segmentation_offload
    assert settings.line_rate_bps == 25_000_000_000


def test_file_reads_every_type(config: Any) -> None:
    environ = config(
        "[transport]\npeer_timeout_s = 3\nmax_datagram_bytes = 'auto'\ndscp = [0,0,0,0,0,0,0,46]\nencrypt = false\n"
        "[torch]\nother = 1\n"
    )
    settings = Settings.load(environ=environ)
    assert settings.peer_timeout_s == 3
    assert settings.dscp == (0, 0, 0, 0, 0, 0, 0, 46)


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"DLCP_PATH": "3"}, "'DLCP_PATH'; did you mean DLCP_PATHS?"),
        ({"DLCP_PEER_TIMEOUT": "3"}, "did you mean DLCP_PEER_TIMEOUT_S?"),
        ({"DLCP_PATHS": "many"}, "DLCP_PATHS is 'many'; accepted: an integer from 1 to 64"),
        ({"DLCP_PATHS": "65"}, "DLCP_PATHS is 65; accepted: an integer from 1 to 64"),
        ({"DLCP_RUN_PACKETS": ""}, "DLCP_RUN_PACKETS is ''; accepted"),
        ({"DLCP_ENCRYPT": "maybe"}, "DLCP_ENCRYPT is 'maybe'; accepted: true or false"),
        ({"DLCP_PEER_TIMEOUT_S": "nan"}, "DLCP_PEER_TIMEOUT_S is nan; accepted"),
        ({"DLCP_CONGESTION": "cubic"}, "'cubic'; accepted: one of window, line_rate, credit"),
        ({"DLCP_KEY": "00" * 32}, "use DLCP_KEY_FILE"),
        ({"DLCP_CONFIG": "/nowhere/dlcp.toml"}, "DLCP_CONFIG names /nowhere/dlcp.toml: No such file"),
    ],
)
def test_environment_mistakes_are_named(environ: dict[str, str], words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Settings.load(environ=environ)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[transport]\npathz = 1", "'pathz'; did you mean paths?"),
        ("[transprot]\npaths = 1", "'transprot'; did you mean [transport]?"),
        ("paths = 1", "unknown table or key 'paths'"),
        ("transport = 1", "accepted: a table [transport]"),
        ("[transport]\npaths = 'x'", "paths is 'x'; accepted: an integer from 1 to 64"),
        ("[transport]\npaths = true", "paths is True; accepted"),
        ("[transport]\nkey = 'x'", "use key_file"),
        ("[transport", "is not TOML"),
    ],
)
def test_file_mistakes_are_named(config: Any, text: str, words: str) -> None:
    environ = config(text)
    with pytest.raises(SettingsError) as caught:
        Settings.load(environ=environ)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"peer_timeouts": 1}, "unknown argument 'peer_timeouts'; did you mean peer_timeout_s?"),
        ({"paths": 0}, "setting paths is 0; accepted: an integer from 1 to 64"),
        ({"port": 65536}, "setting port is 65536"),
        ({"max_datagram_bytes": 100}, "accepted: an integer from 576 to 9 152, or auto"),
        ({"dscp": (0, 1)}, "8 integers from 0 to 63"),
        ({"key": b"short"}, "setting key is a secret of 5 bytes; accepted: 32 bytes"),
        ({"key": b"s"}, "setting key is a secret of 1 byte; accepted: 32 bytes"),
        ({"key": "short"}, "setting key is a str; accepted: 32 bytes"),
        ({"key": KEY, "key_file": "k"}, "give one of them"),
        ({"encrypt": True}, "there is no job key"),
        ({"congestion": "credit"}, "set it to the rate of this host's link"),
        ({"min_rto_s": 2.0}, "less than min_rto_s"),
        ({"bind_host": 7}, "setting bind_host is 7"),
    ],
)
def test_argument_mistakes_are_named(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Settings.load(environ={}, **arguments)
    assert words in str(caught.value)


def test_engine_has_the_last_word() -> None:
    with pytest.raises(SettingsError, match="initial_window"):
        Endpoint(0, settings=Settings(initial_window_bytes=20_000, max_window_bytes=10_000))


def test_replace_checks_again() -> None:
    assert Settings(paths=2).replace(port=9).paths == 2
    with pytest.raises(SettingsError, match="did you mean paths"):
        Settings().replace(path=2)


def test_variables_of_other_parts_are_left_alone() -> None:
    assert Settings.load(environ={"DLCP_TORCH_BUCKET": "1", "DLCP_TEST_SEED": "2", "HOME": "/"}) == Settings()


@pytest.mark.parametrize("content", [KEY, KEY.hex().encode(), KEY.hex().upper().encode() + b"\n"])
def test_key_file_is_raw_or_hexadecimal(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    assert read_key_file(path) == KEY
    assert Settings.load(environ={"DLCP_KEY_FILE": str(path)}).job_key() == KEY


@pytest.mark.parametrize("content", [b"", KEY[:31], KEY + b"\n", b"zz" * 32, KEY.hex()[:-2].encode()])
def test_key_file_of_another_length_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    with pytest.raises(SettingsError, match=f"has {len(content)} bytes?; accepted: exactly 32 bytes, or 64"):
        read_key_file(path)


def test_lists_and_paths_are_taken(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(KEY)
    settings = Settings(dscp=[0, 0, 0, 0, 0, 0, 0, 46], key_file=tmp_path / "key")  # type: ignore[arg-type]
    assert settings.dscp == (0, 0, 0, 0, 0, 0, 0, 46)
    assert settings.key_file == str(tmp_path / "key")
    assert settings.job_key() == KEY


def test_directory_is_no_key_file(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="is a directory; accepted: a file"):
        read_key_file(tmp_path)


def test_absent_key_file_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file or directory; write 32 random bytes there"):
        Endpoint(0, key_file=str(tmp_path / "absent"))


def test_key_is_never_shown() -> None:
    assert KEY.hex() not in repr(Settings(key=KEY))
    assert repr(KEY) not in repr(Settings(key=KEY))


def test_argument_key_takes_the_place_of_a_configured_file() -> None:
    assert Settings.load(environ={"DLCP_KEY_FILE": "/nowhere"}, key=KEY).job_key() == KEY


def test_reachable_address_without_a_key_is_refused() -> None:
    with pytest.raises(AuthenticationError, match="no job key, and other hosts can reach 0.0.0.0"):
        Endpoint(0, bind_host="0.0.0.0")
    with Endpoint(0, bind_host="0.0.0.0", key=KEY) as endpoint:
        assert endpoint.address.startswith("0.0.0.0:")


def test_insisting_without_a_key_is_said_loudly(caplog: pytest.LogCaptureFixture) -> None:
    with Endpoint(0, bind_host="0.0.0.0", allow_unauthenticated=True) as endpoint:
        assert any("can forge" in line for line in endpoint.warnings)
    assert "no job key" in caplog.text
