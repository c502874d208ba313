from fastfeed.auditor.finding import Code, catalogue
from fastfeed.auditor.looking import textcodes


def test_its_names_are_its_own():
    codes = [value for value in vars(textcodes).values() if isinstance(value, Code)]
    assert len(catalogue(*codes)) == len(codes) > 0
