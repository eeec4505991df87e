"""A machine as a picture: every thread once, in the colour and with the letter of its owner, on the paper."""

from __future__ import annotations

import io
import subprocess
import sys
from xml.etree import ElementTree

import pytest
from PIL import Image

from kubeqos.cli.inspect.pixels import SCALE, png
from kubeqos.errors import InputError
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.hardware.named import MACHINES, kep80
from kubeqos.topology.map import owner_signs
from kubeqos.views.machinepicture import colours, machine_picture
from kubeqos.views.picture import FREE, Box, Label, Path, Picture, svg

OWNERS = {
    "reserved": CpuSet.parse("0-1"),
    "default/a & b/main": CpuSet.parse("2-9"),
    "default/hpc/main": CpuSet.parse("60-75"),
}
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("name", MACHINES)
def test_every_machine_has_each_thread_once_and_stays_on_its_paper(name: str) -> None:
    machine = MACHINES[name]()
    picture = machine_picture(machine, {}, name)
    threads = [part for part in picture.parts if isinstance(part, Box) and part.told]
    assert sorted(int(part.told.split(":")[0].removeprefix("CPU ")) for part in threads) == list(machine.online)
    for part in picture.parts:
        if isinstance(part, Box):
            assert part.x >= 0 and part.x + part.width <= picture.width
            assert part.y >= 0 and part.y + part.height <= picture.height
        elif isinstance(part, Label):
            assert 0 <= part.x <= picture.width and 0 < part.y <= picture.height


def test_owners_have_their_letters_colours_and_a_line_in_the_legend() -> None:
    picture = machine_picture(kep80(), OWNERS, "node n")
    signs = owner_signs(OWNERS)
    for name, cpus in OWNERS.items():
        fill, _ = colours(name, signs[name])
        drawn = [part for part in picture.parts if isinstance(part, Box) and f": {name};" in part.told]
        assert len(drawn) == len(cpus) and {part.fill for part in drawn} == {fill} != {FREE}
        assert [part for part in picture.parts if isinstance(part, Label) and part.text.startswith(f"{name}: ")]


def test_svg_is_well_formed_and_says_what_it_shows() -> None:
    root = ElementTree.fromstring(svg(machine_picture(kep80(), OWNERS, "node <n>")))
    assert root.findtext(f"{SVG}title") == "node <n>"
    assert "default/a & b/main: 8 CPUs, 2-9" in [text.text for text in root.iter(f"{SVG}text")]
    assert root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}"


def test_png_shows_the_same_colours() -> None:
    picture = machine_picture(kep80(), OWNERS, "node n")
    image = Image.open(io.BytesIO(png(picture)))
    assert image.format == "PNG" and image.size == (round(picture.width * SCALE), round(picture.height * SCALE))
    part = next(part for part in picture.parts if isinstance(part, Box) and "default/hpc/main" in part.told)
    red, green, blue = image.convert("RGB").getpixel((round((part.x + 2) * SCALE), round((part.y + 2) * SCALE)))  # type: ignore[misc]
    assert f"#{red:02x}{green:02x}{blue:02x}" == part.fill


def test_lines_and_their_ends_are_drawn_in_both() -> None:
    picture = Picture(40, 20, "t", (Path(((2, 10), (30, 10)), "#ff0000", 2, arrow=True),))
    assert 'marker-end="url(#head)"' in svg(picture)
    assert Image.open(io.BytesIO(png(picture))).convert("RGB").getpixel((20, 20)) == (255, 0, 0)


def test_without_pillow_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(InputError, match="Pillow") as told:
        png(Picture(1, 1, "t", ()))
    assert "kubeqos[png]" in str(told.value.remedy)


def run(*words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "kubeqos.cli.main", "map", *words], capture_output=True, check=False)


def test_the_command_prints_both_forms() -> None:
    assert run("--machine", "tiny2", "-o", "svg").stdout.startswith(b"<svg ")
    assert run("--machine", "tiny2", "-o", "png").stdout.startswith(b"\x89PNG")


@pytest.mark.parametrize("words", [("--all", "-o", "svg"), ("node", "-w", "-o", "png")])
def test_one_at_a_time(words: tuple[str, ...]) -> None:
    done = run(*words)
    assert done.returncode == 2 and b"Usage" in done.stderr
