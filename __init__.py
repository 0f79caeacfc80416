"""Frequencies of what people do, from one noisy bit per person, on Apache Beam.

The package has four parts, and imports run one way through them:

* :mod:`hadabeam.mechanisms`: the mathematics (NumPy and ``cryptography`` only).
* :mod:`hadabeam.schemas`: Avro schemas and the typed rows that match them.
* :mod:`hadabeam.transforms`: Beam transforms over batches of records.
* :mod:`hadabeam.pipelines`: the jobs behind the ``hadabeam`` command.

Importing this module loads neither Beam nor NumPy.
"""

__version__ = "0.1.0"
