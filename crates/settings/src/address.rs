//! Addresses to listen on, as people type them.

use std::net::SocketAddr;

/// An IP address and a port; `localhost:PORT` is on 127.0.0.1.
///
/// # Errors
/// What should have been written.
pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let numeric = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    let wrong = |_| "write an IP address and port, as in 127.0.0.1:9000 or [::1]:0".to_owned();
    numeric.as_deref().unwrap_or(text).parse().map_err(wrong)
}

/// Where metrics are served. For people who scrape this machine from this machine, a port is enough.
///
/// # Errors
/// What should have been written.
pub fn parse_metrics_address(text: &str) -> Result<SocketAddr, String> {
    match text.parse::<u16>() {
        Ok(port) => Ok(SocketAddr::from(([127, 0, 0, 1], port))),
        Err(_) => parse_address(text).map_err(|_| {
            "write a port, 1 to 65535, or 0 for a free one; or an IP address and port, as in 0.0.0.0:9100"
                .into()
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_to_listen_on_has_a_port() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(parse_address(text).ok(), expected.map(|address| address.parse().unwrap()), "{text}");
        };
        check("127.0.0.1:9000", Some("127.0.0.1:9000"));
        check("[::1]:0", Some("[::1]:0"));
        check("localhost:0", Some("127.0.0.1:0"));
        for wrong in ["localhost", "foo", "127.0.0.1", ":99999", "::1:0x", "localhost:99999", ""] {
            check(wrong, None);
        }
    }
}
