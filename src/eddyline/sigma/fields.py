"""Fields of rules among the columns of events.

The events of log sources are found here, too. A field is a column by its exact name, else by its
name in any case, else a path of names with dots into a struct or map. What is not found is NULL for
every event.

Of Windows, a category is known by Sysmon's ids and, where Windows audits the same, by ids of other
channels; a service is a channel. What is not listed here restricts nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from eddyline.errors import QueryError
from eddyline.query.conditions import And, Compare, OneOf, Operand, Or, TextTest
from eddyline.sql.parsing import quoted
from eddyline.sql.rendering import string_literal
from eddyline.sql.types import STRING, nested_parts, parse_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from eddyline.query.conditions import Node
    from eddyline.sql.types import SqlType

_NESTED = ("array", "map", "struct", "interval", "other")
"""Families of types whose values are neither texts nor numbers."""


_ELASTIC = {
    "CommandLine": "process.command_line",
    "CurrentDirectory": "process.working_directory",
    "DestinationHostname": "destination.domain",
    "DestinationIp": "destination.ip",
    "DestinationPort": "destination.port",
    "EventID": "event.code",
    "Image": "process.executable",
    "ImageLoaded": "file.path",
    "OriginalFileName": "process.pe.original_file_name",
    "ParentCommandLine": "process.parent.command_line",
    "ParentImage": "process.parent.executable",
    "ParentProcessId": "process.parent.pid",
    "ProcessId": "process.pid",
    "QueryName": "dns.question.name",
    "SourceIp": "source.ip",
    "SourcePort": "source.port",
    "TargetFilename": "file.path",
    "TargetObject": "registry.path",
    "User": "user.name",
}
"""Names of Elastic's common schema for fields of Sigma's taxonomy."""


@dataclass(frozen=True, slots=True)
class Found:
    """A value of events: a column, or what a path into one leads to."""

    sql: str
    type_text: str
    """As Spark writes it, names of fields in their own case."""
    column: str

    @property
    def type(self) -> SqlType:
        """The type."""
        return parse_type(self.type_text)

    @property
    def is_nested(self) -> bool:
        """Whether it is neither a text nor a number, boolean or time."""
        return self.type.family in _NESTED

    @property
    def operand(self) -> Operand:
        """The value as it is."""
        return _operand(self.sql, self.type_text, self.column)

    @property
    def as_text(self) -> Operand:
        """The value as a text."""
        family = self.type.family
        if family == "string":
            return self.operand
        cast = f"CAST({self.sql} AS STRING)"
        # Bytes need not be a text, and text that is not UTF-8 cannot leave the JVM.
        sql = f"make_valid_utf8({cast})" if family == "binary" else cast
        return _operand(sql, STRING.text, self.column)


@lru_cache(maxsize=1 << 14)
def _operand(sql: str, type_text: str, column: str) -> Operand:
    """Return an operand; thousands of rules have the same few."""
    return Operand(sql, parse_type(type_text), (column,))


class Columns:
    """The columns of events, by the names that rules give them."""

    def __init__(self, columns: Mapping[str, str]) -> None:
        self._columns = columns
        self._targets: dict[str, Found | None] = {}
        self._folded: dict[str, str] = {}
        for name in columns:
            self._folded.setdefault(name.lower(), name)

    def find(self, field: str) -> Found | None:
        """Return the value of a field, or None if events lack it."""
        if field not in self._targets:
            self._targets[field] = self._searched(field)
        return self._targets[field]

    def _searched(self, field: str) -> Found | None:
        name = self._spelled(field)
        if name is None:
            return self._along(field)
        target = Found(quoted(name), self._columns[name], name)
        return None if target.type.family == "null" else target

    def texts(self) -> list[Found]:
        """Return every column that is a text, and every text within a struct."""
        targets = []
        for name, kind in self._columns.items():
            targets += list(_texts_within(Found(quoted(name), kind, name)))
        return targets

    def numbers(self) -> list[Found]:
        """Return every column that is a number."""
        columns = [Found(quoted(name), kind, name) for name, kind in self._columns.items()]
        return [target for target in columns if target.type.is_numeric]

    def _spelled(self, name: str) -> str | None:
        return name if name in self._columns else self._folded.get(name.lower())

    def _along(self, path: str) -> Found | None:
        """Return the value at a path: the longest column name that starts it goes first."""
        names = path.split(".")
        for n_first in range(len(names) - 1, 0, -1):
            column = self._spelled(".".join(names[:n_first]))
            if column is not None:
                within = Found(quoted(column), self._columns[column], column)
                return _within(within, names[n_first:])
        return None


def _within(target: Found, names: list[str]) -> Found | None:
    """Return the value at a path of names within a struct or map."""
    if not names:
        return None if target.type.family == "null" else target
    if target.type.family == "map":
        key, value = nested_parts(target.type_text)
        if parse_type(key).family != "string":
            return None
        # A key may have dots itself.
        name = string_literal(".".join(names))
        return Found(f"try_element_at({target.sql}, {name})", value, target.column)
    if target.type.family != "struct":
        return None
    fields = _fields(target.type_text)
    for n_first in range(len(names), 0, -1):
        wanted = ".".join(names[:n_first])
        for name, kind in sorted(fields.items(), key=lambda field: field[0] != wanted):
            if name.lower() == wanted.lower():
                inner = Found(f"{target.sql}.{quoted(name)}", kind, target.column)
                return _within(inner, names[n_first:])
    return None


def _texts_within(target: Found) -> Iterator[Found]:
    if target.type.family == "string":
        yield target
    elif target.type.family == "struct":
        for name, kind in _fields(target.type_text).items():
            yield from _texts_within(
                Found(f"{target.sql}.{quoted(name)}", kind, target.column),
            )


def _fields(struct: str) -> dict[str, str]:
    """Return name and type of each field.

    >>> _fields("struct<Image:string,at:struct<x:int,y:decimal(3,1)>>")
    {'Image': 'string', 'at': 'struct<x:int,y:decimal(3,1)>'}
    """
    pairs = (part.partition(":") for part in nested_parts(struct))
    return {name.strip("` "): kind for name, _, kind in pairs}


def likely_columns(fields: Iterable[str], columns: Mapping[str, str]) -> dict[str, str]:
    """Return the likely columns of fields that events lack, by field.

    A column is likely if its path ends with the name of the field (case and separators ignored), or
    is that name in Elastic's common schema.

    >>> likely_columns(["Image", "User", "x"], {"process": "struct<executable:string>",
    ...     "data": "struct<user_:string,im:int>"})
    {'Image': 'process.executable', 'User': 'data.user_'}
    """
    by_end: dict[str, str] = {}
    for name, kind in columns.items():
        for path in _paths(name, kind):
            parts = path.split(".")
            for start in range(len(parts)):
                end = "".join(map(_folded, parts[start:]))
                if end not in by_end or len(path) < len(by_end[end]):
                    by_end[end] = path
    columns_by_field = {}
    for field in fields:
        names = (field, _ELASTIC.get(field, ""))
        likely = next(
            (by_end[_folded(candidate)] for candidate in names if _folded(candidate) in by_end),
            None,
        )
        if likely is not None:
            columns_by_field[field] = likely
    return columns_by_field


def _folded(name: str) -> str:
    return re.sub(r"[\W_]", "", name).lower()


def _paths(path: str, kind: str) -> Iterator[str]:
    """Yield the paths to the values of a column, inside its structs."""
    if parse_type(kind).family != "struct":
        yield path
        return
    for name, inner in _fields(kind).items():
        yield from _paths(f"{path}.{name}", inner)


CHANNEL_FIELDS = ("Channel", "winlog.channel", "System.Channel")
"""Fields with the channel of an event: the first that it has counts."""

ID_FIELDS = ("EventID", "winlog.event_id", "event.code", "System.EventID")
"""Fields with the id of an event: the first that it has counts."""


@dataclass(frozen=True, slots=True)
class Events:
    """Events of some channels, or of those only that have one of some ids."""

    channels: tuple[str, ...]
    ids: tuple[int, ...] = ()
    """None: every event of the channels."""


@dataclass(frozen=True, slots=True)
class LogSource:
    """The log that a rule is for."""

    category: str | None = None
    product: str | None = None
    service: str | None = None

    @property
    def events(self) -> tuple[Events, ...]:
        """The events it means; none if that is not known."""
        if (self.product or "").lower() != "windows":
            return ()
        of_category = CATEGORIES.get((self.category or "").lower(), ())
        channels = SERVICES.get((self.service or "").lower())
        if channels is None:
            return of_category
        if not of_category:
            return (Events(channels),)
        both = tuple(events for events in of_category if set(events.channels) & set(channels))
        return both or (Events(channels),)

    def __str__(self) -> str:
        """Return its parts in a fixed order."""
        parts = {"category": self.category, "product": self.product, "service": self.service}
        return ", ".join(f"{key}: {value}" for key, value in parts.items() if value)


_SYSMON = ("Microsoft-Windows-Sysmon/Operational",)
_SECURITY = ("Security",)
_POWERSHELL = ("Microsoft-Windows-PowerShell/Operational", "PowerShellCore/Operational")
_CLASSIC = ("Windows PowerShell",)


def _sysmon(*ids: int) -> Events:
    return Events(_SYSMON, ids)


CATEGORIES: dict[str, tuple[Events, ...]] = {
    "process_creation": (_sysmon(1), Events(_SECURITY, (4688,))),
    "file_change": (_sysmon(2),),
    "network_connection": (_sysmon(3), Events(_SECURITY, (5156,))),
    "sysmon_status": (_sysmon(4, 16),),
    "process_termination": (_sysmon(5), Events(_SECURITY, (4689,))),
    "driver_load": (_sysmon(6),),
    "image_load": (_sysmon(7),),
    "create_remote_thread": (_sysmon(8),),
    "raw_access_thread": (_sysmon(9),),
    "raw_access_read": (_sysmon(9),),
    "process_access": (_sysmon(10),),
    "file_event": (_sysmon(11),),
    "registry_event": (_sysmon(12, 13, 14), Events(_SECURITY, (4657,))),
    "registry_add": (_sysmon(12),),
    "registry_delete": (_sysmon(12),),
    "registry_set": (_sysmon(13), Events(_SECURITY, (4657,))),
    "registry_rename": (_sysmon(14),),
    "create_stream_hash": (_sysmon(15),),
    "pipe_created": (_sysmon(17, 18),),
    "wmi_event": (_sysmon(19, 20, 21),),
    "dns_query": (_sysmon(22),),
    "file_delete": (_sysmon(23, 26),),
    "clipboard_capture": (_sysmon(24),),
    "clipboard_change": (_sysmon(24),),
    "process_tampering": (_sysmon(25),),
    "file_delete_detected": (_sysmon(26),),
    "file_block": (_sysmon(27),),
    "file_block_executable": (_sysmon(27),),
    "file_block_shredding": (_sysmon(28),),
    "file_executable_detected": (_sysmon(29),),
    "sysmon_error": (_sysmon(255),),
    "ps_module": (Events(_POWERSHELL, (4103,)),),
    "ps_script": (Events(_POWERSHELL, (4104,)),),
    "ps_classic_start": (Events(_CLASSIC, (400,)),),
    "ps_classic_provider_start": (Events(_CLASSIC, (600,)),),
    "ps_classic_script": (Events(_CLASSIC, (800,)),),
}
"""Events of a category of ``product: windows``."""

SERVICES: dict[str, tuple[str, ...]] = {
    "application": ("Application",),
    "applocker": (
        "Microsoft-Windows-AppLocker/MSI and Script",
        "Microsoft-Windows-AppLocker/EXE and DLL",
        "Microsoft-Windows-AppLocker/Packaged app-Deployment",
        "Microsoft-Windows-AppLocker/Packaged app-Execution",
    ),
    "appmodel-runtime": ("Microsoft-Windows-AppModel-Runtime/Admin",),
    "appxdeployment-server": ("Microsoft-Windows-AppXDeploymentServer/Operational",),
    "appxpackaging-om": ("Microsoft-Windows-AppxPackaging/Operational",),
    "bits-client": ("Microsoft-Windows-Bits-Client/Operational",),
    "capi2": ("Microsoft-Windows-CAPI2/Operational",),
    "certificateservicesclient-lifecycle-system": (
        "Microsoft-Windows-CertificateServicesClient-Lifecycle-System/Operational",
    ),
    "codeintegrity-operational": ("Microsoft-Windows-CodeIntegrity/Operational",),
    "dhcp": ("Microsoft-Windows-DHCP-Server/Operational",),
    "diagnosis-scripted": ("Microsoft-Windows-Diagnosis-Scripted/Operational",),
    "dns-client": ("Microsoft-Windows-DNS-Client/Operational",),
    "dns-server": ("DNS Server",),
    "dns-server-analytic": ("Microsoft-Windows-DNS-Server/Analytical",),
    "driver-framework": ("Microsoft-Windows-DriverFrameworks-UserMode/Operational",),
    "firewall-as": ("Microsoft-Windows-Windows Firewall With Advanced Security/Firewall",),
    "hyper-v-worker": ("Microsoft-Windows-Hyper-V-Worker",),
    "iis-configuration": ("Microsoft-IIS-Configuration/Operational",),
    "kernel-event-tracing": ("Microsoft-Windows-Kernel-EventTracing",),
    "kernel-shimengine": (
        "Microsoft-Windows-Kernel-ShimEngine/Operational",
        "Microsoft-Windows-Kernel-ShimEngine/Diagnostic",
    ),
    "ldap": ("Microsoft-Windows-LDAP-Client/Debug",),
    "ldap_debug": ("Microsoft-Windows-LDAP-Client/Debug",),
    "lsa-server": ("Microsoft-Windows-LSA/Operational",),
    "microsoft-servicebus-client": ("Microsoft-ServiceBus-Client",),
    "msexchange-management": ("MSExchange Management",),
    "ntfs": ("Microsoft-Windows-Ntfs/Operational",),
    "ntlm": ("Microsoft-Windows-NTLM/Operational",),
    "openssh": ("OpenSSH/Operational",),
    "powershell": _POWERSHELL,
    "powershell-classic": _CLASSIC,
    "printservice-admin": ("Microsoft-Windows-PrintService/Admin",),
    "printservice-operational": ("Microsoft-Windows-PrintService/Operational",),
    "security": _SECURITY,
    "security-mitigations": (
        "Microsoft-Windows-Security-Mitigations/Kernel Mode",
        "Microsoft-Windows-Security-Mitigations/User Mode",
    ),
    "sense": ("Microsoft-Windows-SENSE/Operational",),
    "servicebus-client": ("Microsoft-ServiceBus-Client/Admin",),
    "shell-core": ("Microsoft-Windows-Shell-Core/Operational",),
    "smbclient-connectivity": ("Microsoft-Windows-SmbClient/Connectivity",),
    "smbclient-security": ("Microsoft-Windows-SmbClient/Security",),
    "smbserver-connectivity": ("Microsoft-Windows-SMBServer/Connectivity",),
    "sysmon": _SYSMON,
    "system": ("System",),
    "taskscheduler": ("Microsoft-Windows-TaskScheduler/Operational",),
    "terminalservices-localsessionmanager": (
        "Microsoft-Windows-TerminalServices-LocalSessionManager/Operational",
    ),
    "vhdmp": ("Microsoft-Windows-VHDMP/Operational",),
    "windefend": ("Microsoft-Windows-Windows Defender/Operational",),
    "wmi": ("Microsoft-Windows-WMI-Activity/Operational",),
}
"""Channels of a service of ``product: windows``."""


def restriction(source: LogSource, columns: Columns, *, demanded: bool) -> Node | None:
    """Return the condition of a log source on events; if ``demanded``, they have to say theirs.

    Returns:
        A tree; None if the log source is not known or the events say neither channel nor id.
    """
    wanted = source.events
    channel, event_id = _first(columns, CHANNEL_FIELDS), _first(columns, ID_FIELDS)
    if demanded and wanted:
        _demand(channel, "channel", CHANNEL_FIELDS, source)
        if any(events.ids for events in wanted):
            _demand(event_id, "event id", ID_FIELDS, source)
    tests: list[Node] = []
    for events in wanted:
        both = _holds(events, channel, event_id)
        if both is None:
            return None
        tests.append(both)
    if not tests:
        return None
    return tests[0] if len(tests) == 1 else Or(tuple(tests))


def said(source: LogSource) -> str:
    """Return the events that a log source means, in words; empty if that is not known.

    >>> said(LogSource("ps_module", "windows"))
    'Microsoft-Windows-PowerShell/Operational 4103, PowerShellCore/Operational 4103'
    """
    return ", ".join(
        " ".join([channel, "/".join(map(str, events.ids))]).strip()
        for events in source.events
        for channel in events.channels
    )


def _holds(wanted: Events, channel: Found | None, event_id: Found | None) -> Node | None:
    parts: list[Node] = []
    if channel is not None:
        parts.append(_any_text(channel, wanted.channels))
    if event_id is not None and wanted.ids:
        parts.append(_any_id(event_id, wanted.ids))
    if len(parts) == 2:
        return And(tuple(parts))
    return parts[0] if parts else None


def _any_text(target: Found, texts: tuple[str, ...]) -> Node:
    tests = tuple(TextTest(target.as_text, (text.lower(),), folded=True) for text in texts)
    return tests[0] if len(tests) == 1 else Or(tests)


def _any_id(target: Found, ids: tuple[int, ...]) -> Node:
    if not target.type.is_numeric:
        return _any_text(target, tuple(str(number) for number in ids))
    values = tuple(float(number) for number in ids) if target.type.family == "float" else ids
    if len(values) == 1:
        return Compare(target.operand, "=", values[0])
    return OneOf(target.operand, values)


def _first(columns: Columns, names: tuple[str, ...]) -> Found | None:
    targets = (columns.find(name) for name in names)
    return next((target for target in targets if target is not None and not target.is_nested), None)


def _demand(target: Found | None, what: str, names: tuple[str, ...], source: LogSource) -> None:
    if target is None:
        msg = (
            f"the log source ({source}) asks for the {what} of events, and they have none of the"
            f" columns {', '.join(names)}; load the rules with restrict='auto' or False"
        )
        raise QueryError(msg)
