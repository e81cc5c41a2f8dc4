"""Other tools' measurements as history: trtexec's tuning caches, exports and logs, Torch-TensorRT's tuning caches.

A parser per tool turns a file into sessions (``session.py``); ``importing.py`` finds their models and environments and
makes measurements of them. What cannot be imported is counted by reason and never guessed.
"""

from __future__ import annotations

from routecast.datasets.importers.detection import Format, detect
from routecast.datasets.importers.importing import FileReport, Imported, import_files
from routecast.datasets.importers.request import ImportRequest

__all__ = ["FileReport", "Format", "ImportRequest", "Imported", "detect", "import_files"]
