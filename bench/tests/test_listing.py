"""What nginx answers to who lists."""

import unittest
import xml.etree.ElementTree as xml

import support

import listing
from content import Content, Objects, keys, model_header

SPACE = "{http://s3.amazonaws.com/doc/2006-03-01/}"


class Folders(support.WithFolder):
    def setUp(self):
        super().setUp()
        self.content = Content(self.folder / "www")
        for objects, form in [(Objects(100, 1), "one"), (Objects(5, 120), "many"), (Objects(3, 250), "tree")]:
            self.content.make(objects, form)
        listing.write(self.folder / "listings", self.content)

    def answer(self, name: str) -> tuple[list[str], list[str]]:
        """Folders and keys of the answer that lies there."""
        found = xml.fromstring((self.folder / "listings" / name).read_text())
        folders = [each.text for each in found.iter(f"{SPACE}Prefix") if each.text and each.text != found.findtext(f"{SPACE}Prefix")]
        return folders, [each.text for each in found.iter(f"{SPACE}Key")]

    def test_top(self):
        found = xml.fromstring((self.folder / "listings/folders/.xml").read_text())
        rows = [each.findtext(f"{SPACE}Prefix") for each in found.iter(f"{SPACE}CommonPrefixes")]
        self.assertEqual(rows, ["small-5Bx120/", "tree-3Bx250/"])
        self.assertEqual(self.answer("folders/.xml")[1], ["big-100B"])

    def test_a_folder_in_a_folder_by_both_forms_of_its_name(self):
        for name in ["tree-3Bx250/00002/", "tree-3Bx250%2F00002%2F"]:
            folders, files = self.answer(f"folders/{name}.xml")
            self.assertEqual((folders, len(files), files[0]), ([], 50, "tree-3Bx250/00002/000200"), name)

    def test_a_name_without_its_slash(self):
        found = xml.fromstring((self.folder / "listings/folders/tree-3Bx250.xml").read_text())
        self.assertEqual([each.findtext(f"{SPACE}Prefix") for each in found.iter(f"{SPACE}CommonPrefixes")], ["tree-3Bx250/"])

    def test_pages_as_amazons(self):
        self.content.make(Objects(2, 2500), "many")
        listing.write_folders(self.folder / "again", self.content)
        got, page = [], ""
        while page is not None:
            found = xml.fromstring((self.folder / f"again/small-2Bx2500/{page}.xml").read_text())
            rows = [each.text for each in found.iter(f"{SPACE}Key")]
            self.assertLessEqual(len(rows), 1000)
            got += rows
            token = found.findtext(f"{SPACE}NextContinuationToken")
            self.assertEqual(found.findtext(f"{SPACE}IsTruncated"), "true" if token else "false")
            page = f"@{token}" if token else None
        self.assertEqual(got, sorted(key for key in self.content.sha256 if key.startswith("small-2Bx2500/")))

    def test_one_name_for_who_looks_whether_a_folder_is_there(self):
        folders, files = self.answer("folders/small-5Bx120%2F@one.xml")
        self.assertEqual((folders, files), ([], ["small-5Bx120/00000"]))

    def test_a_row_says_what_nginx_will_say(self):
        text = (self.folder / "listings/folders/.xml").read_text()
        stat = (self.content.bucket / "big-100B").stat()
        self.assertIn(f"&quot;{int(stat.st_mtime):x}-64&quot;", text)
        self.assertIn("<Size>100</Size>", text)


class Forms(unittest.TestCase):
    def test_keys(self):
        self.assertEqual(keys(Objects(1 << 30, 1), "model"), ["model-1GiB.safetensors"])
        self.assertEqual(keys(Objects(16, 101), "tree")[-1], "tree-16Bx101/00001/000100")

    def test_a_model_has_its_tensors_to_the_last_byte(self):
        import json

        size = 1 << 20
        head = model_header(size)
        length = int.from_bytes(head[:8], "little")
        tensors = json.loads(head[8:])
        self.assertEqual(len(head), 8 + length)
        ends = [each["data_offsets"][1] for each in tensors.values()]
        starts = [each["data_offsets"][0] for each in tensors.values()]
        self.assertEqual((len(tensors), starts, ends[-1]), (300, [0, *ends[:-1]], size - 8 - length))


if __name__ == "__main__":
    unittest.main()
