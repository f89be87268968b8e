"""The service's own tests, against a deployment: what they claim of one machine holds of many."""

from __future__ import annotations

import pytest

from tests.app.http.test_bad_requests import *  # noqa: F403
from tests.app.http.test_graph import *  # noqa: F403
from tests.app.http.test_infer import *  # noqa: F403
from tests.app.http.test_models import *  # noqa: F403

pytestmark = pytest.mark.slow

# They look into the process that answers: at its log, and at what it has compiled.
del test_a_failure_of_ours_shows_nothing_of_its_inside  # noqa: F821
del test_a_large_tensor_as_text_earns_one_line_of_advice  # noqa: F821
del test_json_is_the_engines_description_under_the_models_name  # noqa: F821
