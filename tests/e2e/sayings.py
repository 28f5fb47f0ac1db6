"""What providers say of a machine, each as a function of the machine that it is said of.

Times are from the moment in which it is said. Tests keep the words apart from what they mean: none of this knows ours.
"""

from __future__ import annotations

import json
import time
import uuid

from tests.e2e.machines import Machine, Say
from tests.fakes import metadata


def utc(seconds: float) -> str:
    """A time from now, as AWS writes most of them."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))


def gmt(seconds: float) -> str:
    """A time from now, as AWS writes those of scheduled events, and Azure all of its own."""
    return time.strftime("%d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + seconds))


def spot(action: str, seconds: float) -> Say:
    def say(machine: Machine) -> None:
        machine.metadata.aws[metadata.SPOT] = json.dumps({"action": action, "time": utc(seconds)})

    return say


def rebalance(machine: Machine) -> None:
    machine.metadata.aws[metadata.REBALANCE] = json.dumps({"noticeTime": utc(0)})


def scheduled(code: str, seconds: float, state: str = "active") -> Say:
    def say(machine: Machine) -> None:
        event = {"EventId": "instance-event-1", "Code": code, "State": state, "Description": "The host is old"}
        event |= {"NotBefore": gmt(seconds), "NotAfter": gmt(seconds + 3_600)}
        machine.metadata.aws[metadata.SCHEDULED] = json.dumps([event])

    return say


def scale_in(machine: Machine) -> None:
    machine.metadata.aws[metadata.LIFECYCLE] = "Terminated"


def gcp(key: str, value: str) -> Say:
    return lambda machine: machine.metadata.set_gcp(key, value)


def azure(type_: str, seconds: float, vm: str = "gpu-vm-1") -> Say:
    def say(machine: Machine) -> None:
        id_ = str(uuid.uuid5(uuid.NAMESPACE_DNS, machine.node))  # an event of this machine alone
        event = {"EventId": id_, "EventType": type_, "EventStatus": "Scheduled"}
        machine.metadata.events.append(event | {"Resources": [vm], "NotBefore": gmt(seconds), "Description": ""})

    return say


def file(kind: str, seconds: float | None = None, id_: str = "rack-1") -> Say:
    def say(machine: Machine) -> None:
        deadline = {} if seconds is None else {"deadline": time.time() + seconds}
        machine.say({"id": id_, "kind": kind, **deadline})

    return say


def broker(kind: str, seconds: float, **more: str) -> Say:
    def say(machine: Machine) -> None:
        entry = {"id": "offer-7", "kind": kind, "deadline": time.time() + seconds, "node": machine.node, **more}
        machine.metadata.broker = json.dumps([entry]).encode()

    return say


def both(*sayings: Say) -> Say:
    def say(machine: Machine) -> None:
        for one in sayings:
            one(machine)

    return say


def aws_says(path: str, text: str) -> Say:
    return lambda machine: machine.metadata.aws.update({path: text})


def set_up(**fields: object) -> Say:
    def say(machine: Machine) -> None:
        for name, value in fields.items():
            setattr(machine.metadata, name, value)

    return say


def half_written(machine: Machine) -> None:
    machine.file.write_text('[{"id": "a", "ki')
