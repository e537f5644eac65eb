"""What git is run with, whatever the user's configuration and the environment say."""

from __future__ import annotations

CONFIG = {
    "core.hooksPath": "/dev/null",
    "core.fsync": "all",
    "core.fsmonitor": "false",
    "core.safecrlf": "false",
    "core.splitIndex": "false",
    "core.untrackedCache": "false",
    "core.logAllRefUpdates": "false",
    "core.quotePath": "false",
    "commit.gpgSign": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "i18n.commitEncoding": "UTF-8",
    "i18n.logOutputEncoding": "UTF-8",
    "index.sparse": "false",
    "trailer.separators": ":",
}
"""Settings: hooks, signing and housekeeping are off, and objects are flushed."""

NEUTRAL_ENVIRONMENT = {
    "GIT_ALTERNATE_OBJECT_DIRECTORIES": "",
    "GIT_NAMESPACE": "",
    "GIT_GLOB_PATHSPECS": "0",
    "GIT_NOGLOB_PATHSPECS": "0",
    "GIT_ICASE_PATHSPECS": "0",
}
"""Of what a hook of another repository, or a shell, may hand down."""
