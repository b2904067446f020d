//! What Python does with files: maps them, and handles signals while it reads.

use std::fs;
use std::time::Duration;

use crate::held::Held;
use crate::model::*;
use crate::program;
use crate::reader::Reader;

#[test]
fn files_are_mapped() {
    let held = Held::new();
    // Also what is open for direct I/O, where the kernel grants it (Linux 6.6).
    for name in ["big", "direct"] {
        let script = "import mmap, sys, zlib\n\
            f = open(sys.argv[1], 'rb')\n\
            m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED)\n\
            print(zlib.crc32(m[:3 << 20]), m[-1])";
        let python = |path: &std::path::Path| {
            let ran = program("python3").arg("-c").arg(script).arg(path).output().unwrap();
            assert!(ran.status.success(), "{name}: {}", String::from_utf8_lossy(&ran.stderr));
            ran.stdout
        };
        let plain = tempfile::NamedTempFile::new().unwrap();
        fs::write(plain.path(), Model::bytes(BIG, 0, BIG_BYTES as usize)).unwrap();
        assert_eq!(python(&held.path(name)), python(plain.path()), "{name}");
    }
}

#[test]
fn a_handled_signal_does_not_fail_a_read() {
    use rustix::process::Signal;
    let held = Held::new();
    let script = "import os, signal, sys\n\
        signal.signal(signal.SIGUSR1, lambda *_: None)\n\
        fd = os.open(os.environ['POINT'] + '/stuck-read', os.O_RDONLY | os.O_DIRECT)\n\
        libc = __import__('ctypes').CDLL(None, use_errno=True)\n\
        buffer = __import__('mmap').mmap(-1, 4096)\n\
        at = __import__('ctypes').addressof(__import__('ctypes').c_char.from_buffer(buffer))\n\
        print(libc.read(fd, __import__('ctypes').c_void_p(at), 4096))";
    program("python3");
    let mut reader = Reader::of(&held, &format!("exec python3 -c '{}'", script.replace('\'', "'\\''")));
    held.model.until("it waits", |state| state.stuck_reads.len() == 1);
    reader.signal(Signal::USR1);
    // The bytes come while the signal is still being thought about.
    std::thread::sleep(Duration::from_millis(300));
    let answer = held.model.state().stuck_reads.pop().unwrap();
    let bytes = Model::bytes(STUCK_READ, 0, 4096);
    answer(Ok(&mut bytes.chunks(1000)));
    assert!(reader.end().success());
    let mut said = String::new();
    std::io::Read::read_to_string(reader.0.stdout.as_mut().unwrap(), &mut said).unwrap();
    assert_eq!(said.trim(), "4096");
}

#[test]
fn a_reader_that_was_stopped_had_failed() {
    use rustix::process::Signal;
    let held = Held::new();
    let mut reader =
        Reader::of(&held, "exec dd if=$POINT/stuck-read iflag=direct bs=4096 count=1 of=/dev/null");
    held.model.until("it waits", |state| state.stuck_reads.len() == 1);
    reader.signal(Signal::STOP);
    // Longer than a handled signal is thought about.
    std::thread::sleep(Duration::from_millis(2500));
    reader.signal(Signal::CONT);
    let answer = held.model.state().stuck_reads.pop().unwrap();
    let bytes = Model::bytes(STUCK_READ, 0, 4096);
    answer(Ok(&mut bytes.chunks(1000)));
    assert!(reader.end().success());
}
