from fastfeed.auditor.finding import Code, catalogue
from fastfeed.auditor.looking import setcodes


def test_its_names_are_its_own():
    codes = [value for value in vars(setcodes).values() if isinstance(value, Code)]
    assert len(catalogue(*codes)) == len(codes) > 0
