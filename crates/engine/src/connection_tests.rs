//! What no origin of the other tests does: it takes nothing.

use super::*;

#[test]
fn an_origin_that_takes_nothing_held_a_request_for_ever() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("its address");
    let (endpoint, _) = Endpoint::parse(&format!("http://{address}")).expect("an endpoint");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let refused = runtime.block_on(async {
        let tls = Tls::new(None).expect("no bundle");
        let within = Duration::from_secs(10);
        let socket = connect(&endpoint, None, address, &tls, within).await.expect("the kernel takes it");
        let mut connection = Connection::new(socket, endpoint, address, 0, Duration::from_millis(200));
        // More than both sockets' buffers hold.
        connection.exchange(&vec![b'x'; 64 << 20]).await.expect_err("nobody reads")
    });
    assert_eq!(refused.kind(), ErrorKind::Timeout);
    assert!(refused.to_string().contains("nothing could be sent in time"), "{refused}");
}
