//! Answers put together from lines that matter, and chunked bodies that are whole. A test of the engine makes them too.

use proptest::prelude::*;

fn status_line() -> impl Strategy<Value = String> {
    let status = prop_oneof![3 => Just(200u16), 3 => Just(206), 1 => 100u16..1000];
    ("HTTP/1\\.[01]", status, "( [ -~]{0,8})?")
        .prop_map(|(version, status, reason)| format!("{version} {status}{reason}"))
}

/// Headers that frame a body or look as if they did.
fn line() -> impl Strategy<Value = String> {
    let name =
        "(Content-Length|content-length|Transfer-Encoding|Connection|Content-Range|ETag|X|Content-Length )";
    let value = prop_oneof![
        4 => "[0-9]{1,2}".boxed(),
        3 => "(chunked|Chunked|identity|gzip|close|keep-alive)(,|, )?(chunked|identity|[0-9]+)?".boxed(),
        1 => "[ -~\t\u{a0}\u{2003}]{0,6}".boxed(),
    ];
    (name, ":[ \t]{0,2}", value).prop_map(|(name, colon, value)| format!("{name}{colon}{value}"))
}

pub fn body() -> impl Strategy<Value = Vec<u8>> {
    let size = prop_oneof![8 => 1usize..20, 1 => Just(0)];
    let extension = prop_oneof![5 => Just(String::new()), 1 => "[ \t;=a-z\"]{0,6}".boxed()];
    let chunk = (size, extension, any::<u8>()).prop_map(|(size, extension, fill)| {
        let mut chunk = format!("{size:x}{extension}\r\n").into_bytes();
        chunk.extend(vec![fill; size]);
        chunk.extend(b"\r\n");
        chunk
    });
    let end = prop_oneof![3 => Just("0\r\n\r\n".to_owned()), 1 => "0\r\n([a-z: \r\n]{0,12})\r\n".boxed()];
    let chunked = (prop::collection::vec(chunk, 0..4), end).prop_map(|(chunks, end)| {
        let mut body = chunks.concat();
        body.extend(end.as_bytes());
        body
    });
    prop_oneof![2 => chunked, 1 => prop::collection::vec(any::<u8>(), 0..40)]
}

prop_compose! {
    pub fn answer()(
        interim in prop::option::weighted(0.2, "HTTP/1.1 1[0-9]{2} X\r\n\r\n"),
        status in status_line(),
        lines in prop::collection::vec(line(), 0..4),
        line_break in prop_oneof![9 => Just("\r\n"), 1 => Just("\n")],
        body in body(),
    ) -> Vec<u8> {
        let lines: String = lines.iter().map(|line| format!("{line}{line_break}")).collect();
        let head = format!("{}{status}{line_break}{lines}{line_break}", interim.unwrap_or_default());
        [head.into_bytes(), body].concat()
    }
}
