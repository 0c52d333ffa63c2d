import msgspec

from qlock.core.timing import timing_changes
from tests.fakes.documents import a_device, a_gpu_device, a_setting

replace = msgspec.structs.replace


def test_facts_that_change_speed_alone_are_told_with_both_values() -> None:
    other = a_device(cores=4, cpu_model="Xeon", cpu_stepping=7)
    assert list(timing_changes("device", a_device(), other)) == ["device.cores: `2` and `4`"]
    assert list(timing_changes("setting", a_setting(), a_setting(mmap=False, threads=8))) == [
        "setting.mmap: `true` and `false`"
    ]


def test_a_power_limit_that_is_not_known_is_missing() -> None:
    card = replace(a_gpu_device().gpu[0], power_limit_mw=msgspec.UNSET)
    one, other = a_gpu_device(gpu=(card,)), a_gpu_device(gpu=a_gpu_device().gpu[:1])
    assert list(timing_changes("device", one, other)) == [
        "device.gpu.0.power_limit_mw: `missing` and `72000`"
    ]


def test_equal_facts_are_not_told() -> None:
    assert list(timing_changes("device", a_gpu_device(), a_gpu_device())) == []
