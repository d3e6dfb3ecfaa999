"""Three hospitals' files for the tutorial: patients with age, stage and treatment, and whether they died.

    python -m examples.three_hospitals DIRECTORY

writes `north.csv`, `south.csv` and `west.csv` of different sizes. Only the south has stage IV, the west exports its
numbers with semicolons and decimal commas, and the south's table has a column that the study does not use. The
patients are made up: odds ratios of 1.8 for ten years of age, 3 for stage III against I, 0.5 for the new treatment.
"""

import csv
import sys
from pathlib import Path

import numpy as np

SIZES = {"north": 400, "south": 900, "west": 250}
DIFFERENCE = {"north": 0.3, "south": -0.2, "west": 0.1}  # of the hospitals, on the scale of log-odds
STAGES = {"I": 0.0, "II": 0.5, "III": np.log(3), "IV": 1.6}


def patients(hospital: str) -> list[dict[str, str]]:
    """The rows of one hospital, as text."""
    rng = np.random.default_rng([2026, sorted(SIZES).index(hospital)])
    stages = list(STAGES) if hospital == "south" else ["I", "II", "III"]
    rows = []
    for _ in range(SIZES[hospital]):
        age, stage, new = float(np.clip(rng.normal(64, 11), 20, 99)), str(rng.choice(stages)), rng.random() < 0.5
        odds = -1.6 + DIFFERENCE[hospital] + np.log(1.8) * (age - 64) / 10 + STAGES[stage] + np.log(0.5) * new
        died = rng.random() < 1 / (1 + np.exp(-odds))
        row = {"age": f"{age:.1f}", "stage": stage, "treatment": "new" if new else "usual"}
        rows.append({**row, "died": "yes" if died else "no"})
    return rows


def write(directory: Path) -> list[Path]:
    """Write the three files, each in its hospital's own manner."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for hospital in SIZES:
        rows, path = patients(hospital), directory / f"{hospital}.csv"
        if hospital == "south":
            rows = [{"ward": f"{1 + number % 7}, second floor", **row} for number, row in enumerate(rows)]
        if hospital == "west":
            rows = [{**row, "age": row["age"].replace(".", ",")} for row in rows]
        with path.open("w", newline="", encoding="utf-8-sig" if hospital == "west" else "utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]), delimiter=";" if hospital == "west" else ",")
            writer.writeheader()
            writer.writerows(rows)
        paths.append(path)
    return paths


if __name__ == "__main__":
    for written in write(Path(sys.argv[1] if len(sys.argv) > 1 else "hospitals")):
        print(written)
