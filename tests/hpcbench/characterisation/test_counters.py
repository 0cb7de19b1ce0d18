"""Readers of other tools' output, on lines as their documentation has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcbench.characterisation.counters.read_moved import read_moved
from hpcbench.characterisation.model import MovedBytes
from staging.errors import InputError

PERF = """\
# started on Tue Nov 24 10:00:00 2026

1024.50,MiB,uncore_imc_0/cas_count_read/,1000000000,100.00,,
1023.50,MiB,uncore_imc_1/cas_count_read/,1000000000,100.00,,
512.00,MiB,uncore_imc_0/cas_count_write/,1000000000,100.00,,
3.000000,,duration_time,3000000000,100.00,,
"""
NCU = """\
==PROF== Connected to process 4242 (/usr/bin/python3.11)
==PROF== Profiling "implicit_gemm" - 0: 0%....50%....100% - 2 passes
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"
"0","4242","python3.11","127.0.0.1","implicit_gemm","1","7","(128, 1, 1)","(4096, 1, 1)","0","8.0","Command line profiler metrics","dram__bytes_read.sum","Mbyte","1,536.25"
"0","4242","python3.11","127.0.0.1","implicit_gemm","1","7","(128, 1, 1)","(4096, 1, 1)","0","8.0","Command line profiler metrics","dram__bytes_write.sum","Gbyte","2.50"
"1","4242","python3.11","127.0.0.1","relu","1","7","(128, 1, 1)","(64, 1, 1)","0","8.0","Command line profiler metrics","dram__bytes_read.sum","Kbyte","250.00"
"1","4242","python3.11","127.0.0.1","relu","1","7","(128, 1, 1)","(64, 1, 1)","0","8.0","Command line profiler metrics","dram__bytes_write.sum","byte","128"
"""  # noqa: E501
ROCPROF = """\
"Index","KernelName","gpu-id","queue-id","queue-index","pid","tid","grd","wgr","lds","scr","vgpr","sgpr","fbar","sig","obj","FETCH_SIZE","WRITE_SIZE"
0,"igemm_fwd",0,0,0,4242,4242,262144,256,0,0,32,32,0,0x0,0x7f,2048.0000000000,1024.5000000000
1,"relu",0,0,2,4242,4242,1024,256,0,0,8,16,0,0x0,0x7f,1.0000000000,0.5000000000
"""
DARSHAN = """\
# darshan log version: 3.41
# compression method: ZLIB
# exe: /usr/bin/python3.11 train
# nprocs: 2
#<module>\t<rank>\t<record id>\t<counter>\t<value>\t<file name>\t<mount pt>\t<fs type>
POSIX\t0\t11\tPOSIX_READS\t3\t/lustre/data/a\t/lustre\tlustre
POSIX\t0\t11\tPOSIX_BYTES_READ\t3000\t/lustre/data/a\t/lustre\tlustre
POSIX\t0\t11\tPOSIX_BYTES_WRITTEN\t0\t/lustre/data/a\t/lustre\tlustre
POSIX\t1\t12\tPOSIX_READS\t1\t/lustre/data/b\t/lustre\tlustre
POSIX\t1\t12\tPOSIX_BYTES_READ\t500\t/lustre/data/b\t/lustre\tlustre
POSIX\t0\t13\tPOSIX_WRITES\t2\t/tmp/c\t/tmp\text4
POSIX\t0\t13\tPOSIX_BYTES_WRITTEN\t64\t/tmp/c\t/tmp\text4
POSIX\t0\t13\tPOSIX_FASTEST_RANK\t-1\t/tmp/c\t/tmp\text4
STDIO\t0\t14\tSTDIO_BYTES_READ\t9999\t<STDIN>\tUNKNOWN\tUNKNOWN
"""


def read(tmp_path: Path, text: str, steps: int | None = None) -> list[MovedBytes]:
    path = tmp_path / "output"
    path.write_text(text)
    return read_moved(path, steps)


def test_perf_sums_the_memory_controllers(tmp_path: Path) -> None:
    assert read(tmp_path, PERF, steps=10) == [MovedBytes("perf", "memory", 2048 * 2**20, 512 * 2**20, 10)]


def test_nsight_compute_sums_the_kernels(tmp_path: Path) -> None:
    assert read(tmp_path, NCU) == [MovedBytes("ncu", "memory", 1_536_250_000 + 250_000, 2_500_000_128)]


def test_rocprof_counts_in_kilobytes_of_1024(tmp_path: Path) -> None:
    assert read(tmp_path, ROCPROF) == [MovedBytes("rocprof", "memory", 2049 * 1024, 1025 * 1024)]


def test_darshan_by_mount_point(tmp_path: Path) -> None:
    assert read(tmp_path, DARSHAN) == [
        MovedBytes("darshan", "/lustre", 3500, 0, operations=4), MovedBytes("darshan", "/tmp", 0, 64, operations=2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (PERF.replace("1024.50", "<not supported>"), "perf says <not supported> of uncore_imc_0/cas_count_read/"),
        (PERF.replace("MiB", "pages"), "perf gives uncore_imc_0/cas_count_read/ in 'pages'"),
        (PERF.replace("cas_count_write", "clockticks"), "perf did not count cas_count_write; give it with -e, too"),
        (NCU.replace("dram__bytes_write", "dram__bytes"), "ncu did not measure dram__bytes_write.sum"),
        (NCU.replace("Mbyte", "sector"), "ncu gives bytes in 'sector'"),
        (ROCPROF.replace("WRITE_SIZE", "SQ_WAVES"), "rocprof did not count WRITE_SIZE"),
        (DARSHAN.replace("POSIX\t", "H5D\t"), "darshan's log has no records of the module POSIX"),
        ("hello\n", "is no output of perf stat -x, of ncu --csv, rocprof or darshan-parser"),
        (PERF.replace("1024.50", "nan"), "perf's read_bytes (nan) must be a finite number"),
        (PERF.replace("512.00", "-512.00"), "perf's written_bytes (-536870912.0) must be at least 0"),
        (PERF.replace("512.00", "many"), "perf's uncore_imc_0/cas_count_write/ (many) must be a number"),
        (NCU.replace("1,536.25", "1e400"), "ncu's read_bytes (inf) must be a finite number"),
        (NCU.replace("250.00", "n/a"), "ncu's dram__bytes_read.sum (n/a) must be a number"),
        (NCU.replace("implicit_gemm", "g" * 131_073), "is no table in CSV (field larger than field limit (131072))"),
        (ROCPROF.replace("2048.0000000000", "abc"), "rocprof's FETCH_SIZE (abc) must be a number"),
        (DARSHAN.replace("\t3000\t", "\tzz\t"), "darshan's POSIX_BYTES_READ (zz) must be a number"),
    ],
)
def test_output_without_the_counters_is_refused(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        read(tmp_path, text)
    assert said in str(error.value)


@pytest.mark.parametrize("text", [PERF, NCU, ROCPROF, DARSHAN])
def test_output_that_was_cut_in_a_line_is_refused(text: str, tmp_path: Path) -> None:
    """Each number of its last line could be cut without a trace."""
    for left_out in (1, 3, 9, 14):
        with pytest.raises(InputError, match="ends within a line, so the output was cut; give all of it"):
            read(tmp_path, text[:-left_out])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\n".join(NCU.splitlines()[:-1]), "ncu's output has 2 of dram__bytes_read.sum and 1 of dram__bytes_write.sum"),
        (NCU.replace(',"Kbyte","250.00"', ""), "row 4 of ncu's table has not one value for each of 15 columns"),
        (
            ROCPROF.replace(",1.0000000000,0.5000000000", ""),
            "row 3 of rocprof's table has not one value for each of 18",
        ),
        (ROCPROF.replace("0.5000000000", "0.5,7"), "row 3 of rocprof's table has not one value for each of 18 columns"),
    ],
)
def test_rows_that_were_cut_are_refused(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        read(tmp_path, text.rstrip("\n") + "\n")
    assert said in str(error.value)


def test_lines_of_nsight_compute_between_rows_are_no_rows(tmp_path: Path) -> None:
    lines = NCU.splitlines(keepends=True)
    assert read(tmp_path, "".join([*lines[:5], "==WARNING== a note\n", *lines[5:]])) == read(tmp_path, NCU)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "output").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="is no text; give the output of perf stat"):
        read_moved(tmp_path / "output")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no file"):
        read_moved(tmp_path / "none")
