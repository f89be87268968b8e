"""The records a zip archive is made of, for its reader and its writer.

Layouts are those of PKWARE's APPNOTE.TXT 6.3, sections 4.3 and 4.5.3; all integers are little-endian.
"""

from __future__ import annotations

import struct
from typing import Final

# signature, version, flags, method, time, date, crc, packed size, size, name length, extra length
LOCAL: Final = struct.Struct("<4s5H3L2H")
LOCAL_MAGIC: Final = b"PK\3\4"
# signature, made by, version, flags, method, time, date, crc, packed size, size, name length, extra length,
# comment length, disk, internal attributes, external attributes, offset of the local header
CENTRAL: Final = struct.Struct("<4s6H3L5H2L")
CENTRAL_MAGIC: Final = b"PK\1\2"
# signature, disk, disk of the directory, records on this disk, records, directory size, its offset, comment length
END: Final = struct.Struct("<4s4H2LH")
END_MAGIC: Final = b"PK\5\6"
# signature, size of what follows, made by, version, disk, disk of the directory, records on this disk, records,
# directory size, its offset
END64: Final = struct.Struct("<4sQ2H2L4Q")
END64_MAGIC: Final = b"PK\6\6"
# signature, disk, offset of the zip64 end record, disks
LOCATOR64: Final = struct.Struct("<4sLQL")
LOCATOR64_MAGIC: Final = b"PK\6\7"
# id and length of an extra field
EXTRA: Final = struct.Struct("<2H")
ZIP64_ID: Final = 1

# A field that is full has its value in a zip64 record.
FULL16: Final = 0xFFFF
FULL32: Final = 0xFFFFFFFF

STORED: Final = 0
ENCRYPTED: Final = 0x2041
DESCRIPTOR: Final = 0x0008
UTF8: Final = 0x0800
