"""Video, on the host: four chunks of a film, decoded."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import pictures  # noqa: E402
import serving  # noqa: E402

HEIGHT, WIDTH, CHUNKS = 720, 1280, 4


def load(device):
    film = pictures.Pictures(HEIGHT, WIDTH)

    def run(inputs, params):
        names = [f"chunk{number}" for number in range(CHUNKS)]
        return {name: film.decoded(params, params["batch"], name) for name in names}

    return run


if __name__ == "__main__":
    serving.main(load)
