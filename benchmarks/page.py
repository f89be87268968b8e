"""One page of results a processor, `benchmarks/results/<processor>.md`.

    python -m benchmarks.page                             # draw the pages, with what is new in benchmarks/raw
    python -m benchmarks.page --measure networks startup  # measure these sections here, then draw; alone: all of them

The newest result of each kind is taken, and of networks the newest of each network, number of threads and batch. What
a page is drawn from is kept beside it, as `<processor>.json.gz`.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any, Final

from app.render.formatting import counted
from benchmarks.machine import ROOT
from benchmarks.raw import RAW, pack, unpack
from benchmarks.record import OURS
from benchmarks.report import NOTHING, ms, table

RESULTS: Final = Path(__file__).with_name("results")
README: Final = Path(__file__).with_name("README.md")

SECTIONS: Final[dict[str, tuple[str, str]]] = {
    "other_networks": (
        "Networks of other packages",
        "Networks for which nothing was tuned, against onnxruntime and OpenVINO; ratios of fastest runs.",
    ),
    "random_sizes": (
        "Dynamic sizes: every request has another size",
        "From the first request on, the compile cache as stated. A ratio is the faster rival's quantile divided by "
        "ours.",
    ),
    "random_size_costs": (
        "Dynamic sizes: what they cost",
        "The same networks with the sizes of their example fixed are the other side of each ratio. A new size is the "
        "extra time of its first run. The last columns are the p99 of another session, which runs MobileNetV3-small "
        "every 5 ms, while a thread runs forty sizes, divided by its p99 alone: sizes of a session that has compiled "
        "nothing yet, new sizes for a template, and the same sizes again.",
    ),
    "random_size_bursts": (
        "Random sizes: forty new ones at once, over HTTP",
        "p99 of a client that asks for one size of MobileNetV3-small every 10 ms: alone, while forty connections each "
        "send another size to the network of the row, and while they send them again. The server has one core.",
    ),
    "random_shapes": (
        "Dynamic sizes: ten thousand random sizes",
        "Memory may grow by 5 % after the first hundred, and p99 may be 1.2 times that of the largest size.",
    ),
    "formats": (
        "ONNX files against PNNX pairs",
        "The same networks from both formats; the aim is a ratio of 0.98 to 1.02.",
    ),
    "exported": (
        "Written ONNX files against PyTorch's",
        "The same networks as `export-onnx` and as `torch.onnx.export` write them, both in onnxruntime; fastest runs.",
    ),
    "classical": (
        "Classical models",
        "Pipelines of scikit-learn, LightGBM and XGBoost; a ratio is onnxruntime's time divided by ours, fastest runs.",
    ),
    "quantised": (
        "Quantised ONNX files, and bfloat16",
        "Files of onnxruntime's quantiser: static (QDQ form, unsigned activations), signed (its default options) and "
        "dynamic. In bf16, onnxruntime computes in float32. A ratio is the faster rival's time divided by ours, "
        "fastest runs.",
    ),
    "bfloat16": (
        "Networks in bfloat16",
        'The float32 files, with `precision = "bf16"` here and OpenVINO\'s bf16, which is its default; onnxruntime '
        "computes in float32. A ratio is the faster rival's time divided by ours, fastest runs.",
    ),
    "block_products": (
        "Weights of 4 and 8 bits",
        "Linear layers with weights in blocks (`MatMulNBits`) and one row of input; weights come from memory. The roof "
        "is the rate at which memory is read, without arithmetic. A ratio is onnxruntime's time divided by ours. The "
        "decoder step is one token through 8 transformer layers of width 768 and a head of 16,384 words.",
    ),
    "int8": (
        "Int8 networks of each engine's own quantiser",
        "Each engine quantised the float32 network with its own tool on the same samples: `pnnx-serve quantize` "
        "without a budget, onnxruntime's static quantiser (QDQ form, one weight scale a channel) and OpenVINO's NNCF. "
        "OpenVINO runs with bfloat16 for what stays float, its default, and with float32; the faster counts. `best "
        "rival` and `float32` are that time divided by ours in int8, fastest runs. *Keeps* is the share of the float32 "
        "answer's energy that is kept; the weights are random, which exaggerates the loss.",
    ),
    "int8_auto": (
        "Networks of float32, bfloat16 and int8",
        "As the table before, with `ours auto`: `pnnx-serve quantize --precision auto`, whose layers are float32, "
        "bfloat16 or int8. `best rival` and `float32` are that time divided by that of `ours auto`.",
    ),
    "int8_accuracy": (
        "Accuracy of int8 networks",
        "Real weights and real data, quantised with the default budget, measured on data of neither training nor "
        "calibration.",
    ),
    "texts": (
        "Embeddings of texts",
        "MiniLM-L6 over HTTP against other servers, and against engines without a server. A ratio is our texts per "
        "second divided by theirs.",
    ),
    "texts_int8": (
        "Embeddings of texts by integer products",
        "MiniLM-L6 as onnxruntime's `quantize_dynamic` writes it, one scale a channel; all engines run the same file. "
        "OpenVINO is left out: it takes 5 times as long. A ratio is our texts per second divided by theirs.",
    ),
    "loadgen": (
        "Embeddings of texts by MLPerf LoadGen",
        "MiniLM-L6 over HTTP, a text of 8 to 64 tokens per query; the highest rate whose p99 latency is within the "
        "bound of MLPerf, 15 ms. Clients and server share two cores. A trial has few queries, so that its p99 is that "
        "of the slowest or second slowest, and the rate is uncertain: earlier runs beside other work, with trials of "
        "2 s, differed by a factor of two and more, and in two of them ours was not the fastest. "
        "Longer texts and pictures through ResNet-50 are left out: alone, they take as long as the bound in most "
        "engines. A ratio is our rate divided by theirs.",
    ),
    "servers": (
        "Serving: against other servers",
        "Each server on one core with one thread for the model, clients on other cores.",
    ),
    "serving": (
        "Serving: cost of a request beside its model",
        "Processor time of one request. The floor is a bare ASGI app that moves the same bytes, with Pillow's decoding "
        "added for pictures.",
    ),
    "engine_alone": (
        "Serving: throughput behind HTTP against the engine alone",
        "Targets are 0.93 (ResNet-18) and 0.90 (MobileNetV2).",
    ),
    "rate": (
        "Serving: overload",
        "Goodput counts answers with status 200. Targets: 0.90 of the peak; refusals within 50 ms and health checks "
        "within 100 ms (p99).",
    ),
    "overload": (
        "Serving: good clients during an attack",
        "One client sends pictures, another asks `/health/ready`, while a third sends what the row says.",
    ),
    "soak": ("Serving: half an hour of everything at once", ""),
    "replicas": ("Serving: two replicas on two cores", ""),
    "rolling": ("Serving: rolling updates under load", "Two replicas are replaced one after the other."),
    "ray": ("Serving: overhead of Ray Serve", ""),
    "startup": (
        "Start-up",
        "From the command to `/health/live`, to `/health/ready`, and the first request after that; the models of "
        "`model_store`.",
    ),
    "memory": (
        "Memory after the second answer",
        "`cold`: just compiled; `warm`: from the compile cache. `pss` counts shared pages by their share.",
    ),
    "layers": (
        "Numpy layers against PyTorch",
        "The reference layers, one thread. They run operators that have no kernel.",
    ),
}
"""Kind of a result -> title and explanation of its section, in the order of the page."""

COMMANDS: Final[dict[str, tuple[str, ...]]] = {
    "networks": ("bench_graph --networks vision transformers recurrent others awkward --output {raw}/networks",),
    "random_sizes": ("random_sizes --cache filled --save random_sizes",),
    "random_size_costs": ("random_sizes.costs --save random_size_costs",),
    "random_size_bursts": ("random_sizes.burst --save random_size_bursts",),
    "random_shapes": ("random_shapes --save random_shapes",),
    "formats": ("formats --save formats",),
    "exported": ("exported --save exported",),
    "classical": ("classical_models --save classical",),
    "quantised": ("quantised_models --save quantised",),
    "bfloat16": ("quantised_models --kinds bf16 --threads 1 2 --save bfloat16",),
    "block_products": ("block_products --save block_products",),
    "int8": ("int8_models --save int8",),
    "int8_auto": (
        "int8_models --auto --save int8_auto --networks "
        "whisper_tiny_encoder vit_tiny_224 bert_mini_128 swin_tiny_224 mobilenet_v3_small convnext_tiny_224",
    ),
    "int8_accuracy": (
        "int8_accuracy --packages {raw}/wheels --pictures {raw}/imagenet-sample-images --boxes {raw}/coco128_yolo "
        "--detector {raw}/yolox_nano.onnx --save int8_accuracy",
    ),
    "texts": ("texts --model {raw}/minilm --save texts",),
    "texts_int8": ("texts --precision int8 --model {raw}/minilm-int8 --save texts_int8",),
    "loadgen": ("texts.loadgen --model {raw}/minilm --save loadgen",),
    "servers": ("servers --folder {raw}/servers --save servers",),
    "serving": ("serving --save serving",),
    "engine_alone": ("servers.engine_alone --folder {raw}/servers --save engine_alone",),
    "rate": ("overload.rate --save rate",),
    "overload": ("overload --save overload",),
    "soak": ("soak --save soak",),
    "replicas": ("replicas --save replicas",),
    "rolling": ("rolling --save rolling",),
    "startup": ("startup --save startup",),
    "memory": ("footprint --save memory",),
    "layers": ("bench_layers",),
}
"""Section -> the benchmarks that measure it; `{raw}` is the folder of raw results."""

SUMMARY: Final = ("networks", "geometric mean", "lowest", "below 1")
BEGIN, END = "<!-- summary: written by python -m benchmarks.page -->\n", "<!-- end of summary -->"


def take(kept: dict[str, Any], raw: Mapping[str, Any]) -> None:
    """Add a raw result to what a page is drawn from, unless the page has newer figures."""
    if raw["kind"] == "networks":
        _take_networks(kept, raw)
    elif raw["kind"] in SECTIONS:
        section = {key: raw[key] for key in ("machine", "how", "body")}
        old = kept["sections"].get(raw["kind"])
        if old is None or old["machine"]["date"] <= raw["machine"]["date"]:
            kept["sections"][raw["kind"]] = section


def _take_networks(kept: dict[str, Any], raw: Mapping[str, Any]) -> None:
    machine, cells = raw["machine"], kept["networks"]
    kept["runs"].setdefault(machine["date"], machine)
    for record in raw["records"]:
        key = f"{record['network']} {record['threads']} {record['batch']}"
        cell = cells.get(key)
        if cell is None or cell["date"] < machine["date"]:
            cell = cells[key] = {"date": machine["date"], "engines": {}}
        if cell["date"] == machine["date"]:
            cell["engines"][record["engine"]] = _figures(record)
    used = {cell["date"] for cell in cells.values()}
    kept["runs"] = {date: run for date, run in kept["runs"].items() if date in used}


def _figures(record: Mapping[str, Any]) -> dict[str, Any]:
    if record["failure"]:
        return {"failure": record["failure"]}
    names = ("best_s", "median_s", "build_s", "second_s", "warm_build_s", "rss_bytes", "error_share")
    return {name: record[name] for name in names if record.get(name) is not None}


def ratio(cell: Mapping[str, Any], figure: str) -> float | None:
    """Return the best rival's time divided by ours; None if either is missing."""
    times = {engine: found[figure] for engine, found in cell["engines"].items() if figure in found}
    ours = times.pop(OURS, None)
    return min(times.values()) / ours if ours and times else None


def page(kept: Mapping[str, Any]) -> str:
    """Return the page of one processor."""
    parts = [
        f"# {kept['name']}",
        f"{kept['processor']}. Drawn by `python -m benchmarks.page`; [how figures are made](../README.md).",
    ]
    if kept["networks"]:
        parts += ["## Networks: summary", summary(kept), *_network_tables(kept)]
    for kind, (title, explanation) in SECTIONS.items():
        if kind in kept["sections"]:
            section = kept["sections"][kind]
            machine = section["machine"]
            where = f"Measured {machine['date']} UTC, commit {machine['commit']}; {section['how']}."
            parts += [f"## {title}", f"{explanation} {where}".strip(), section["body"]]
    return "\n\n".join(parts) + "\n"


def _groups(kept: Mapping[str, Any]) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Yield batch, threads, and the cells of all networks."""
    keys = [key.split() for key in kept["networks"]]
    for batch, threads in sorted({(int(batch), int(threads)) for _, threads, batch in keys}):
        of_group = [name for name, *where in keys if where == [str(threads), str(batch)]]
        yield batch, threads, {name: kept["networks"][f"{name} {threads} {batch}"] for name in of_group}


def summary(kept: Mapping[str, Any]) -> str:
    """Return the table of geometric means and lowest ratios, a row for every batch and number of threads."""
    titles = ["best rival / ours", *SUMMARY, "means of medians", "lowest", "below 1"]
    return table(titles, [[name, *of_best, *of_medians[1:]] for name, of_best, of_medians in _summary_rows(kept)])


def overview(pages: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the summary of all processors, by fastest runs."""
    rows = [
        [f"[{kept['name']}](results/{name}.md)", measured, *of_best]
        for name, kept in sorted(pages.items(), key=lambda each: -len(each[1]["networks"]))
        for measured, of_best, _ in _summary_rows(kept)
    ]
    return table(["processor", "measured", *SUMMARY], rows)


def _summary_rows(kept: Mapping[str, Any]) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield what was measured, and the cells of the fastest runs and of the medians."""
    for batch, threads, cells in _groups(kept):
        columns = []
        for figure in ("best_s", "median_s"):
            ratios = {name: found for name, cell in cells.items() if (found := ratio(cell, figure)) is not None}
            if not ratios:
                break
            lowest = min(ratios, key=ratios.__getitem__)
            behind = sum(f"{each:.2f}" < "1.00" for each in ratios.values())
            mean = geometric_mean(ratios.values())
            columns.append([str(len(ratios)), f"{mean:.2f}", f"{ratios[lowest]:.2f} ({lowest})", str(behind)])
        else:
            yield f"batch {batch}, {counted(threads, 'thread')}", columns[0], columns[1]


def _network_tables(kept: Mapping[str, Any]) -> Iterator[str]:
    yield (
        "Times are ms, fastest run / median, float32. Ratios are the best rival's time divided by ours: above 1, ours "
        "is faster. `cold` and `warm` are seconds from the files to the first answer, with an empty and a filled "
        "compile cache; RSS is the whole process after two answers, and in brackets that of the smallest rival."
    )
    runs = kept["runs"]
    yield "Measured:\n\n" + "\n".join(
        f"- {date} UTC, commit {run['commit']}: {', '.join(v for e, v in run['engines'].items() if e != OURS)}"
        for date, run in sorted(runs.items())
    )
    for batch, threads, cells in _groups(kept):
        engines = list(dict.fromkeys(engine for cell in cells.values() for engine in cell["engines"]))
        titles = ["network", *engines, "ratio", "of medians", "cold s", "warm s", "RSS MB", "date"]
        yield f"## Networks: batch {batch}, {counted(threads, 'thread')}"
        yield table(titles, [_row(name, cell, engines) for name, cell in cells.items()])
        failures = {
            f"- {name}, {engine}: {found['failure']}"
            for name, cell in cells.items()
            for engine, found in cell["engines"].items()
            if "failure" in found
        }
        if failures:
            yield "Not timed:\n\n" + "\n".join(sorted(failures))


def _row(name: str, cell: Mapping[str, Any], engines: Sequence[str]) -> list[str]:
    found = cell["engines"]
    ours = found.get(OURS, {})
    rivals = [each["rss_bytes"] for engine, each in found.items() if engine != OURS and "rss_bytes" in each]
    rss = f"{ours['rss_bytes'] / 1e6:.0f}" if "rss_bytes" in ours else NOTHING
    return [
        name,
        *(_time(found.get(engine, {})) for engine in engines),
        *(_optional(ratio(cell, figure)) for figure in ("best_s", "median_s")),
        *(_optional(ours.get(figure)) for figure in ("build_s", "warm_build_s")),
        rss + (f" ({min(rivals) / 1e6:.0f})" if rivals else ""),
        cell["date"][5:10],
    ]


def _time(figures: Mapping[str, Any]) -> str:
    return f"{ms(figures['best_s'])} / {ms(figures['median_s'])}" if "best_s" in figures else NOTHING


def _optional(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f}"


def file_name(machine: Mapping[str, Any]) -> str:
    """Return the name of a processor's files: its micro-architecture, or its model where that is not known."""
    name = machine.get("microarchitecture") or machine["processor"].partition("(")[0]
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def draw(raw: Path, results: Path, readme: Path | None = None) -> list[Path]:
    """Draw every page and the overview in the README anew, from kept and new results; return the pages."""
    kept = {path.name.removesuffix(".json.gz"): unpack(path) for path in results.glob("*.json.gz")}
    kept = {name: data for name, data in kept.items() if "sections" in data}
    for path in sorted(raw.glob("*.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        machine = data["machine"]
        name = file_name(machine)
        title = machine.get("microarchitecture") or machine["processor"]
        empty = {"name": title, "processor": machine["processor"], "runs": {}, "networks": {}, "sections": {}}
        take(kept.setdefault(name, empty), data)
    results.mkdir(exist_ok=True)
    for name, data in kept.items():
        pack(results / f"{name}.json.gz", data)
        (results / f"{name}.md").write_text(page(data), encoding="utf-8")
    if readme is not None:
        before, rest = readme.read_text(encoding="utf-8").split(BEGIN)
        readme.write_text(f"{before}{BEGIN}{overview(kept)}\n{END}{rest.split(END)[1]}", encoding="utf-8")
    return [results / f"{name}.md" for name in kept]


def measure(sections: Sequence[str]) -> None:
    """Run the benchmarks of these sections, one after the other."""
    for section in sections:
        for command in COMMANDS[section]:
            words = command.format(raw=RAW).split()
            print(f"python -m benchmarks.{command.format(raw=RAW)}", flush=True)
            subprocess.run([sys.executable, "-m", f"benchmarks.{words[0]}", *words[1:]], cwd=ROOT, check=False)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what is asked for, then draw the pages."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--measure", nargs="*", choices=list(COMMANDS), metavar="SECTION", help=f"({' '.join(COMMANDS)})"
    )
    parser.add_argument("--raw", type=Path, default=RAW, help="raw results (benchmarks/raw)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the pages (benchmarks/results)")
    options = parser.parse_args(argv)
    if options.measure is not None:
        measure(options.measure or list(COMMANDS))
    readme = README if options.results == RESULTS else None
    for path in draw(options.raw, options.results, readme):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
