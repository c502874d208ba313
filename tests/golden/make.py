"""The source of the golden dataset: fixed bytes, fixed times. ``python tests/golden/make.py SRC`` writes it.

No encoder is asked: an image that Pillow made yesterday is another file tomorrow.
"""

import base64
import os
import sys

MTIME_NS = 1_700_000_000_123_456_789
JPEGS = [
    base64.b64decode(
        "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDACgcHiMeGSgjISMtKygwPGRBPDc3PHtYXUlkkYCZlo+AjIqgtObDoKrarYqMyP/L2u71////m8H////6"
        "/+b9//j/2wBDASstLTw1PHZBQXb4pYyl+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj/wAARCAAGAAgD"
        "ASIAAhEBAxEB/8QAFQABAQAAAAAAAAAAAAAAAAAAAAT/xAAXEAEAAwAAAAAAAAAAAAAAAAAAAQID/8QAFAEBAAAAAAAAAAAAAAAAAAAAAP/EABQR"
        "AQAAAAAAAAAAAAAAAAAAAAD/2gAMAwEAAhEDEQA/AIKZQAD/2Q=="
    ),
    base64.b64decode(
        "/9j/4AAQSkZJRgABAQAAAQABAAD/4QAiRXhpZgAATU0AKgAAAAgAAQESAAMAAAABAAYAAAAAAAD/2wBDACgcHiMeGSgjISMtKygwPGRBPDc3PHtY"
        "XUlkkYCZlo+AjIqgtObDoKrarYqMyP/L2u71////m8H////6/+b9//j/2wBDASstLTw1PHZBQXb4pYyl+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4"
        "+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj/wAARCAAIAAYDASIAAhEBAxEB/8QAFQABAQAAAAAAAAAAAAAAAAAAAAP/xAAYEAEAAwEAAAAAAAAA"
        "AAAAAAAAAgMhMf/EABQBAQAAAAAAAAAAAAAAAAAAAAD/xAAUEQEAAAAAAAAAAAAAAAAAAAAA/9oADAMBAAIRAxEAPwCEKM4AD//Z"
    ),
    base64.b64decode(
        "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDACgcHiMeGSgjISMtKygwPGRBPDc3PHtYXUlkkYCZlo+AjIqgtObDoKrarYqMyP/L2u71////m8H////6"
        "/+b9//j/2wBDASstLTw1PHZBQXb4pYyl+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj/wgARCAAIAAgD"
        "ASIAAhEBAxEB/8QAFAABAAAAAAAAAAAAAAAAAAAAAP/EABQBAQAAAAAAAAAAAAAAAAAAAAD/2gAMAwEAAhADEAAAAQP/xAAVEAEBAAAAAAAAAAAA"
        "AAAAAAAAEf/aAAgBAQABBQKP/8QAFBEBAAAAAAAAAAAAAAAAAAAAAP/aAAgBAwEBPwF//8QAFBEBAAAAAAAAAAAAAAAAAAAAAP/aAAgBAgEBPwF/"
        "/8QAFBABAAAAAAAAAAAAAAAAAAAAAP/aAAgBAQAGPwJ//8QAFRABAQAAAAAAAAAAAAAAAAAAAAH/2gAIAQEAAT8hj//aAAwDAQACAAMAAAAQA//E"
        "ABQRAQAAAAAAAAAAAAAAAAAAAAD/2gAIAQMBAT8Qf//EABQRAQAAAAAAAAAAAAAAAAAAAAD/2gAIAQIBAT8Qf//EABUQAQEAAAAAAAAAAAAAAAAA"
        "AABh/9oACAEBAAE/EJv/2Q=="
    ),
]
"""8x6 baseline; 6x8 with EXIF orientation 6; 8x8 progressive."""
PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")

FILES = {
    "train/cat/001.jpg": JPEGS[0],
    "train/cat/001.txt": b"a cat\n",
    "train/cat/Katze groß.JPG": JPEGS[1],
    "train/cat/Katze groß.txt": "eine große Katze\n".encode(),
    "train/dog/22.05.jpg": JPEGS[2],
    "train/dog/22.05.txt": b"",
    "train/dog/cut.jpg": JPEGS[0][:100],
    "train/dog/dot.png": PNG,
    "train/dog/.DS_Store": b"left out",
    "val/cat/001.jpg": JPEGS[1],
    "val/cat/001.txt": b"another cat\n",
    "val/dog/no-extension": JPEGS[2],
}


def make(folder: str) -> None:
    """Write the source into a folder that is not there yet."""
    for name, content in FILES.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)
        os.utime(path, ns=(MTIME_NS, MTIME_NS))


if __name__ == "__main__":
    make(sys.argv[1])
