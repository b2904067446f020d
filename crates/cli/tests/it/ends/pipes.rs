//! Readers of standard output that go: what was on its way ends, quietly and at once.

use std::io::Read;

use super::*;

#[test]
fn a_reader_that_goes_ends_one_object_quietly() {
    for phase in OF_ONE {
        for (command, target) in [("cp", Some("-")), ("cat", None)] {
            let held = Held::at(phase);
            let endpoint = format!("http://{}", held.raw.address);
            let mut program = flatout(&[command, "s3://b/object"]);
            program.args(target).args(["--part-size", PART, "--endpoint-url", &endpoint]);
            let mut child = held.begin(program);
            let mut out = child.stdout.take().unwrap();
            if phase != Phase::FirstByte {
                out.read_exact(&mut [0; 1000]).unwrap();
            }
            drop(out);
            held.go_on();
            let gone = end(child);
            assert_eq!((gone.code, gone.stderr.as_str()), (Some(0), ""), "{phase:?} {command}");
        }
    }
}

#[test]
fn a_reader_of_events_that_goes_ends_many_with_whole_files_only() {
    for phase in [Phase::NextPage, Phase::Amid, Phase::NearEnd] {
        let (held, target) = (Held::at(phase), tempfile::tempdir().unwrap());
        let mut command = held.cp(target.path().to_str().unwrap());
        command.arg("--json");
        let mut child = held.begin(command);
        drop(child.stdout.take());
        held.go_on();
        let gone = end(child);
        assert_eq!((gone.code, gone.stderr.as_str()), (Some(0), ""), "{phase:?}");
        only_whole_files(target.path());
    }
}
