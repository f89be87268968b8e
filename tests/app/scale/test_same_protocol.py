"""The protocol's own tests, against a deployment."""

from __future__ import annotations

import pytest

from tests.app.http.v2.test_infer import *  # noqa: F403
from tests.app.http.v2.test_metadata import *  # noqa: F403

pytestmark = pytest.mark.slow
