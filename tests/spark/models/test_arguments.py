"""What a caller gives to segments is checked without Spark."""

import pytest

from eddyline.errors import OptionError
from eddyline.spark.models.arguments import check_attribute


@pytest.mark.parametrize("name", ["ship", "Ship", "time", "TIME", "Since", "until"])
def test_an_attribute_has_no_name_of_a_key_or_a_time_whatever_the_case(name):
    with pytest.raises(OptionError, match="which results have beside it"):
        check_attribute(name, ["SHIP", "fleet"])
    check_attribute(f"{name}_x", ["SHIP", "fleet"])
