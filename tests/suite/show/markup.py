"""HTML as tests read it."""

from html.parser import HTMLParser

VOID = {"meta", "img", "link", "br", "input"}


class Markup(HTMLParser):
    """Text, elements, attributes and images of some HTML; checks that tags are balanced."""

    def __init__(self, source):
        super().__init__()
        self.open, self.elements, self.attributes, self.images = [], set(), [], []
        self.text, self.size = "", len(source.encode())
        self.feed(source)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.elements.add(tag)
        self.attributes += attributes
        if tag == "img":
            self.images.append(dict(attributes))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data
