//! What stands below the flags in each command's help, and in its manual page: examples, and what flags alone
//! do not say.
//!
//! Paragraphs are separated by an empty line; lines that begin with two spaces stand as they are, and none of
//! them is longer than 78 characters, so that they can be copied from any terminal. One that begins with
//! `Examples:` holds command lines: a test reads each of them as the program would.

/// Of `flatout` itself.
pub const TOP: &str = "\
Examples:
  flatout cp s3://models/llama/model.safetensors .
  flatout cat http://127.0.0.1:9000/logs/today.zst | zstd -dc
  flatout ls -lH s3://models/llama/
  flatout mount s3://models/llama /mnt/llama
  flatout bench get s3://models/llama/model.safetensors --floor

Keys come from where aws and aliyun have theirs: environment, profiles (--profile), SSO, roles of pods and machines; \
--no-sign-request asks for none. The endpoint comes from --endpoint-url, AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL; \
flatout config show says what is set and where. Sizes take units, as in 8MiB, and so do times: 200ms, 5s, 1m.

Exit codes: 0 done, 1 failed, 2 something left out, 3 a listing broke off, 4 usage, 5 access refused, 6 throttled, \
130 interrupted.";

pub const CP: &str = "\
Examples:
  flatout cp s3://models/llama/model.safetensors .
  flatout cp s3://models/llama/model.safetensors /dev/shm/model --parallel 32
  flatout cp http://127.0.0.1:9000/models/readme.txt docs/
  flatout cp s3://models/big.tar - | tar -x
  flatout cp s3://models/big.tar head.bin --range 0-1048575
  flatout cp -r s3://models/llama/ llama/
  flatout cp -r s3://data/ . --exclude '/tmp/' --include '*.parquet'
  flatout cp 's3://logs/2026-11-2?/*.zst' logs/
  flatout cp model.safetensors s3://models/llama/
  flatout cp model.safetensors report.html s3://site/incoming/
  flatout cp -r checkpoints/ s3://models/checkpoints/ --exclude '*.tmp'
  flatout cp report.html oss://site/index.html --cache-control max-age=300
  pg_dump db | zstd | flatout cp - s3://backups/db.zst
  flatout cp s3://models/llama/model.safetensors s3://backups/llama/
  flatout cp s3://models/big.tar oss://backups/big.tar
  flatout cp -r s3://models/llama/ s3://backups/llama/

An object is copied to another by the service itself where both are its own, with its metadata and tags, and in \
parts where it is longer than 256 MiB; else its bytes pass through this machine. A copy is of one version of its \
source, and appears whole or not at all. With -r, what lies below a target within the source is left out. Storage class, encryption and access list are never the source's.

An uploaded object appears whole, or not at all: large ones are sent in parts (--part-size), and the origin \
compares checksums. A file that changes meanwhile fails the upload, and so does a pipe that cannot be read to its end. \
A large file goes on where it was broken off when the same command is run again; other parts that were sent are deleted.

The file appears under its name only when it is whole and, where the origin states a checksum, verified; until then, \
and whenever something fails, what stood there before stays.

With -r the source is a folder, and what lies below it goes below DST under its name relative to that folder; a / at \
the end of either changes nothing. Of a pattern, names are relative to the last folder before the first wildcard; * and \
? stay within a folder, ** does not. An object whose key is the pattern itself, wildcards and all, comes first. Of \
--include and --exclude, in the order typed, the first that matches decides. Objects that no file can stand for (a/../b, \
a//b, a and a/b at once) are left out with a warning and exit code 2: docs/names.md.";

pub const SYNC: &str = "\
Examples:
  flatout sync data/ s3://bucket/data/
  flatout sync data/ s3://bucket/data/ --delete --max-delete 1000
  flatout sync oss://bucket/data/ /mnt/nvme/data --dry-run
  flatout sync s3://bucket/data/ oss://backup/data/ --exclude '*.tmp'
  flatout sync models/ s3://bucket/models/ --checksum

An object or a file is copied where the target has none, where sizes differ, or where the source is newer. Files that \
are fetched get the time of their object; uploads keep the file's in the metadata 'mtime', as rclone does. A second run \
copies nothing.

What could not be read is unknown, not absent: it is neither deleted nor replaced, nothing else is deleted in that \
run, and the exit code is 3. A pipe, a socket or a link that is skipped keeps the object of its name. A file that is \
replaced stays whole until its successor is.

--delete comes last. It deletes nothing after an error, nothing that --include and --exclude leave out (unless \
--delete-excluded is given), no file that was changed meanwhile, and nothing at all where the source is empty, unless \
--max-delete says how many it may be.

--exact-timestamps also replaces what is newer at the target. Both trees are walked in the order of keys, so that \
neither has to fit into memory.";

pub const PIPE: &str = "\
Examples:
  pg_dump db | zstd | flatout pipe s3://backups/db.zst
  tar -c data | flatout pipe oss://backups/data.tar --storage-class IA

The same as `flatout cp - URL`. The object appears when standard input ends: use `set -o pipefail`, and see that the \
writer has ended well. Parts grow, so that 10,000 suffice for 8 TiB as long as --memory allows.";

pub const CAT: &str = "\
Examples:
  flatout cat s3://logs/2026-11-21.zst | zstd -dc | grep error
  flatout cat s3://data/part-0 s3://data/part-1 > whole
  flatout cat 's3://logs/2026-11-2?/*.zst' | zstd -dc | grep error
  flatout cat --range -65536 s3://data/table.parquet | tail -c 4

Many connections fetch ahead, at most --window bytes; the output is in order. Objects of a pattern, or with -r of a \
folder, come in the order of their keys, and each is verified as one alone is. The first failure ends it. When the \
reader closes the pipe (as head does) flatout ends quietly with exit code 0.";

pub const LS: &str = "\
Examples:
  flatout ls
  flatout ls s3://models/
  flatout ls -lH s3://models/llama/
  flatout ls 's3://models/**/*.safetensors'
  flatout ls -r s3://models/llama/ --json | jq -r 'select(.event==\"entry\").key'";

pub const STAT: &str = "\
Examples:
  flatout stat s3://models/llama/model.safetensors
  flatout stat s3://models/llama/model.safetensors --json | jq .bytes
  flatout stat s3://models

Of a bucket it says whether it is there, and its region if the origin names it. A missing bucket is exit code 1, one that \
these keys may not list 5.";

pub const MV: &str = "\
Examples:
  flatout mv s3://models/big.tar s3://backups/big.tar
  flatout mv model.safetensors s3://models/llama/
  flatout mv s3://logs/today.zst .

The copy is the one of `flatout cp`. Then the new object is looked at (size and ETag), a file is synced to disk, and only \
then the source is deleted, as long as it is still what was copied: a file that changed stays, and so does an object \
with another ETag. S3 is asked to delete no other version; OSS has no such condition, and some servers of S3 overlook \
it, so that the source is also looked at just before. When anything fails the source stays, and the exit code says so.";

pub const RM: &str = "\
Examples:
  flatout rm s3://models/readme.txt
  flatout rm s3://data/part-0 s3://data/part-1
  flatout rm 's3://logs/2026-11-2?/*.zst'
  flatout rm -r s3://models/llama/
  flatout rm -r s3://data/ --all --include '*.parquet' --dry-run

An object that is not there is an error, as with rm(1). A key that ends in / is the mark of a folder, and is deleted \
alone; -r deletes everything below it. -r and patterns delete in batches of 1,000 while they list; each \
failure is named, and stops no other. Where everything in a bucket may be meant, --all is needed. --dry-run prints what \
would be deleted, line by line.

Exit code 3 says that the listing broke off: what was deleted before is counted, what else there is is not known. After \
ctrl-C the last line says how many objects are gone.

In a bucket that keeps versions a deleted object is hidden, and its versions stay; --version-id deletes one of them for \
good.";

pub const MB: &str = "\
Examples:
  flatout mb s3://new-bucket
  flatout mb s3://new-bucket --region eu-west-1
  flatout mb oss://new-bucket --oss-region cn-hangzhou";

pub const RB: &str = "\
Examples:
  flatout rb s3://site --force --yes
  flatout rb s3://empty-bucket

Without --force the bucket has to be empty. With it the objects and unfinished uploads are counted first and the numbers \
said; then a terminal is asked, or --yes is needed. Older versions of objects are not deleted: the bucket stays, then.";

pub const PRESIGN: &str = "\
Examples:
  flatout presign s3://models/big.tar
  flatout presign s3://models/big.tar --expires 7d
  flatout presign --put s3://models/incoming.tar --expires 15m

The URL is a secret: whoever has it reads the object, or with --put writes it (`curl -T FILE URL`), until it expires \
or the keys do. It is printed on standard output and nowhere else. Nothing is sent, and whether the object is there is \
not looked at.";

pub const DU: &str = "\
Examples:
  flatout du s3://models
  flatout du -r s3://models/
  flatout du s3://data/ --by-prefix 1
  flatout du 's3://logs/2026-11-*.zst'
  flatout du s3://data/ --include '*.parquet' --json | jq .bytes

A line has bytes, objects and the prefix; that of the whole is the last. A pattern counts the objects that match it and \
all that lies in folders that match; an object whose key is the pattern itself comes first. The numbers are those of a listing: older \
versions and unfinished uploads (`flatout uploads`) are not in them. Memory does not grow with the number of objects.";

pub const HASH: &str = "\
Examples:
  flatout hash s3://models/big.tar
  flatout hash model.safetensors s3://models/llama/model.safetensors
  flatout hash report.html --algorithm md5
  tar -c data | flatout hash - --algorithm crc64nvme

A file is read, and its checksums are written as origins write them: CRCs of S3 in base64, crc64xz (OSS) in decimal, MD5 \
as in an ETag. Of an object the origin is asked, and nothing is read: what it does not state is an error. A checksum of \
parts' checksums cannot be compared with a file's.";

pub const UPLOADS: &str = "\
Examples:
  flatout uploads s3://backups
  flatout uploads s3://backups/db --older-than 7d
  flatout uploads s3://backups --older-than 7d --abort

A line has when the upload was begun, its id and the object that it was to make. Parts of unfinished uploads are paid \
for like objects, and no listing of objects shows them. An upload that is under way is unfinished, too: --older-than \
spares those that began lately.";

pub const RUN: &str = "\
Examples:
  flatout run commands.txt
  flatout run commands.txt --jobs 8 --stop-on-error
  flatout run commands.txt --dry-run
  grep -v '^rm' commands.txt | flatout run

A line is a command as it is typed behind `flatout`: cp, mv, sync, rm, ls, stat, du, mb, rb, presign, hash or uploads, with its \
flags. The word flatout or s5cmd may stand in front. Words are split and quoted as in sh(1): 'a b', \"a b\", a\\ b. Nothing else \
is expanded: not variables, not ~; wildcards in URLs mean what they mean to the command. Blank lines are skipped, and so is \
what follows a # at the beginning of a word.

Lines run side by side, --jobs of them, and end in any order; --jobs 1 runs them one after the other. If two lines write the \
same target, either may be the last, and what it writes is whole. All lines share one engine: its connections, its --memory, \
its limits. The flags of run are for all lines. A line with other settings (--endpoint-url, --region) gets another engine, \
which lines with the same settings share.

A line that fails stops no other. Its error begins with its number, and the worst exit code is that of the run. With \
--stop-on-error no line is begun after the first failure. Lines have no standard input, and write no object to standard \
output.";

pub const MOUNT: &str = "\
Examples:
  flatout mount s3://models/llama /mnt/llama
  flatout mount oss://data /mnt/data --oss-region cn-hangzhou --memory 1GiB
  flatout mount s3:// /mnt/all --attribute-lifetime 10s
  flatout mount s3://data /mnt/data -o ro,uid=1000,allow_other,memory=512MiB
  flatout mount s3://data /mnt/data --file-mode 0755
  flatout mount s3://data /mnt/data --foreground --metrics 9100
  flatout mount s3://data /mnt/data --dry-run
  flatout mount s3://data /mnt/data --supervise
  flatout mount --upgrade /mnt/data

It returns when the folder can be read; a source that cannot be listed is refused with the exit code of any other command, and \
nothing is mounted. Objects that are replaced meanwhile are never mixed: a reader keeps its version, or gets ESTALE. A file \
is sent while it is written, from its start to its end, and is an object when it is closed: what close and fsync say is what the \
origin said. --read-only refuses whatever would write. docs/semantics.md says what every operation does, docs/mount.md the rest.

In /etc/fstab, once make install has put mount.flatout where mount(8) looks:

  s3://models/llama  /mnt/llama  flatout  _netdev,nofail,allow_other  0  0

-o takes what mount(8) passes, every flag below without its dashes (memory=1GiB, attribute_lifetime=10s), and the names of \
libfuse, s3fs, mountpoint-s3, goofys and ossfs where they mean something here or do no harm (docs/from-libfuse.md, \
docs/from-ossfs.md); anything else is an error. Flags are stronger than -o. Files have the mode 0644: --file-mode 0755 lets programs run.

As root the kernel's read-ahead is raised for this mount, which doubles buffered reading; for others a line says what to run. In \
the foreground ctrl-C unmounts. flatout top shows what it does; flatout umount ends it.";

pub const UMOUNT: &str = "\
Examples:
  flatout umount /mnt/llama
  flatout umount --lazy /mnt/llama

It waits until the process that served it has gone. A mount whose process was killed (\"Transport endpoint is not connected\") is \
cleared. While somebody uses it there it fails and says who; with --lazy it is out of sight at once, and ends when \
they are done. Where another mount namespace, an overlay or a bind mount holds it, it says so and does not wait for them.";

pub const TOP_MOUNTS: &str = "\
Examples:
  flatout top
  flatout top /mnt/llama
  flatout top --once --json | jq .bytes.served

A line for each mount: bytes a second from the origin (IN) and to readers (OUT), requests of the kernel, reads whose bytes were \
there (HITS), requests of the kernel that wait (WAIT), parts on their way of how many may be (FLIGHT), resident memory, bytes fetched for each byte read (AMPL), CPU. A mount whose process has gone is \
named below them with what clears it, and one that is not mounted here any more with who holds it. Ctrl-C ends it. Where \
standard output is no terminal, tables follow one another. Numbers come from a socket of each mount that its user alone may \
ask, in $XDG_RUNTIME_DIR/flatout, /run/flatout or /tmp/flatout-UID: curl --unix-socket .../mount-PID.sock http://mount/stats, or /metrics.";

pub const SERVE: &str = "\
Examples:
  flatout serve --root ./buckets --no-auth
  flatout serve --memory --access-key test --secret-key testtest
  flatout serve --synthetic demo/object=4GiB --no-auth --listen 127.0.0.1:0
  flatout serve --synthetic 'many/file-%04d=128KiB*10000' --no-auth
  flatout serve --synthetic far/x=1GiB --no-auth --latency 30ms --total 1GB/s
  flatout serve --synthetic bad/x=1GiB --no-auth --stall 2%:30s --reset 5%
  flatout serve --root ./buckets --no-auth --flip 0.1 --log requests.jsonl
  flatout serve --memory --sink --no-auth
  flatout serve --memory --no-auth --tls ca.pem
  flatout ls s3:// --endpoint-url https://localhost:9000 --ca-bundle ca.pem

When ready it prints 'listening on http://ADDR:PORT' (https with --tls) for each address that is not dead. Ctrl-C or SIGTERM ends it, exit code 0.

The wind tunnel makes bad days. An answer meets with the first fault, in the order typed, that chance chooses for it: by seed, object, last byte asked for and attempt, not by when it is asked. Attempts are counted for as long as serve runs: start it anew to repeat a run. docs/wind-tunnel.md says more.";

pub const DOCTOR: &str = "\
Examples:
  flatout doctor
  flatout doctor s3://models/llama/model.safetensors
  flatout doctor oss://data --oss-region cn-hangzhou
  flatout doctor https://host/file.bin --json | jq -r .advice

With a URL every address of the endpoint is connected to, the object (or the largest on the first page of the listing) is \
read for one second, and nothing is written anywhere. Waits are short: --connect-timeout and --stall-timeout count for at \
most 3s and 5s, --retries for one.

Each finding is good, a note (it costs speed, or may) or bad (transfers fail by it). Exit code 0 when nothing is bad, else \
that of the worst: 1 failed, 4 usage, 5 access refused (keys, policy, clock), 6 throttled.";

pub const CSI: &str = "\
Examples:
  flatout csi node --endpoint unix:///csi/csi.sock --node-name worker-1
  flatout csi engine --metrics 0.0.0.0:9102
  flatout csi controller --endpoint unix:///csi/csi.sock

The driver has three parts, which the chart deploy/charts/flatout-csi installs: on every node a plugin, which mounts, and an engine without privileges, which serves; and one controller. docs/kubernetes.md says what volumes may say of themselves.";

pub const CSI_NODE: &str = "\
Examples:
  flatout csi node --endpoint unix:///csi/csi.sock --node-name worker-1
  flatout csi node --endpoint /csi/csi.sock --node-name worker-1 --memory 8GiB

It ends with SIGTERM and leaves its mounts to the next plugin, to which the engine gives the kernel's connections back. Readers do not notice.";

pub const CSI_ENGINE: &str = "\
Examples:
  flatout csi engine --folder /var/lib/flatout-csi
  flatout csi engine --metrics 0.0.0.0:9102 --drain 10m

A process that dies is started again at once, and goes on with its mounts: readers wait meanwhile. With SIGTERM it waits until no file has bytes that are not sent, for --drain at most, and leaves its mounts to the next engine.";

pub const CSI_CONTROLLER: &str = "\
Examples:
  flatout csi controller --endpoint unix:///csi/csi.sock

It marks the folder of each volume that it makes, and deletes no folder without that mark.";

pub const BENCH: &str = "\
Examples:
  flatout bench demo
  flatout bench get s3://models/big --floor
  flatout bench sweep s3://models/big --report sweep.html";

pub const BENCH_GET: &str = "\
Examples:
  flatout bench get http://127.0.0.1:9000/demo/object --repeat 7 --floor
  flatout bench get s3://models/big --landing memory --parallel 32 --shards 4
  flatout bench get s3://models/big --landing file:/dev/shm/x --parts parts.csv
  flatout bench get -r s3://data/small/ --landing file:/dev/shm/x --floor

The floor is the best of plain blocking recv(2) on 1, 2, 4 and 8 connections, a thread each, with 256 KiB and 1 MiB a \
call, and of one epoll thread over 4 connections. All shapes run once, the three fastest twice more; the one with the \
best median then takes turns with flatout. Over https it is a bare tokio-rustls loop, a thread for each connection.

With -r the floor is a thread for each of 1, 2, 4 or 8 connections that asks for the same objects one after the \
other and writes the same files; over https it has none.";

pub const BENCH_PUT: &str = "\
Examples:
  flatout bench put --size 4GiB s3://models/bench --repeat 7 --floor
  flatout bench put model.safetensors s3://models/bench --part-size 32MiB
  flatout bench put /dev/shm/x oss://b/x --oss-region cn-hangzhou --floor

The floor is the best of plain blocking send(2) from memory, which the file is mapped to, and of sendfile(2), on 1, 2, 4 \
and 8 connections, a thread each, with 1 MiB a call. It sends the same parts to the same URL as an upload that is begun \
before the clock starts and completed when it has stopped; it computes no checksums. All shapes run once, the three fastest \
twice more; the one with the best median then takes turns with flatout. Over https it is a bare tokio-rustls loop, a \
thread for each connection.

RSS of the floor counts the mapped file. To measure the client alone, send to an origin that keeps nothing: \
flatout serve --memory --sink.";

pub const BENCH_SWEEP: &str = "\
Examples:
  flatout bench sweep s3://models/big --parallel 4,16 --part-size 2MiB,8MiB
  flatout bench sweep s3://models/big --report sweep.html
  flatout bench sweep https://host/file.bin --landing file:/dev/shm/x --repeat 7

Each run is a process of its own; the combinations take turns, in another order in each round, so that a drift of machine \
or network favours none. The table holds medians. A combination that fails is a row that says why; the others go on, and \
the exit code is the failure's. Ctrl-C leaves table and page of what is measured.";

pub const BENCH_DEMO: &str = "\
Examples:
  flatout bench demo
  flatout bench demo --size 1GiB --parallel 4

The bytes go nowhere: memory that was never touched would cost more than the transfer. Everything stays on this \
machine.";

pub const CONFIG: &str = "\
Examples:
  flatout config show
  flatout config show --profile minio
  flatout config path

A value comes from the first of these that has one:

  flag         --region
  environment  FLATOUT_REGION
  profile      ~/.config/flatout/config.toml, or the file of FLATOUT_CONFIG
  found        AWS_REGION, ~/.aws/config, OSS_REGION, ~/.aliyun/config.json,
               ~/.ossutilconfig, HTTPS_PROXY, ...
  default

The config file is TOML. Keys are the flags without their dashes; those at the top are the default profile's, a \
table [profile.NAME] holds those of another, which takes nothing from the default one:

  part-size = \"16MiB\"
  resolve = [\"minio:9000:10.0.0.1\", \"minio:9000:10.0.0.2\"]

  [profile.minio]
  endpoint-url = \"http://minio:9000\"

--profile, or FLATOUT_PROFILE, chooses a profile of this file, of ~/.aws and of ~/.aliyun; without it AWS_PROFILE and \
ALIBABA_CLOUD_PROFILE choose among their own tools' files. The file holds no keys: those stay with AWS's and Alibaba \
Cloud's own.";

pub const CONFIG_SHOW: &str = "\
Examples:
  flatout config show
  flatout config show --profile minio
  flatout config show --json | jq -r 'select(.layer == \"found\") | .name'

Lines are name, value, and which of flag, environment, profile, found or default it came from; flatout config --help \
tells what these are. The flags are those of the other commands: what they would do is shown. Nothing is sent but to \
who gives keys.";

pub const COMPLETIONS: &str = "\
Examples:
  flatout completions bash > ~/.local/share/bash-completion/completions/flatout
  flatout completions zsh > \"${fpath[1]}/_flatout\"
  flatout completions fish > ~/.config/fish/completions/flatout.fish

They complete commands, flags, and the values of those that have few; make install puts them in place.";

pub const MAN: &str = "\
Examples:
  flatout man | man -l -
  flatout man ~/.local/share/man/man1

The folder has to be there; pages of the same name in it are replaced. make install puts them in place.";

pub const VOLUME: &str = "\
Examples:
  flatout volume build s3://bucket/train/ train.flat
  flatout volume mount train.flat /mnt/train

An index has the names, sizes, times and ETags of objects, and none of their bytes: about 85 bytes a file. Once it is \
mounted, names and attributes come from it and cost no request. Reads fetch the object at the ETag that the index has: \
one that was replaced is an error, never other bytes. docs/small-files.md says when an index serves better than a \
shard or a plain mount.";

pub const VOLUME_BUILD: &str = "\
Examples:
  flatout volume build s3://bucket/train/ train.flat
  flatout volume build s3://bucket/train/ s3://bucket/indexes/train.flat
  flatout volume build s3://bucket/ all.flat --inventory s3://logs/manifest.json
  flatout volume build s3://bucket/train/ train.flat --names names.txt

The index appears under its name when it is whole; until then, and whenever something fails, what was there before \
stays: also where no file lies there. Anything else than an index that has the name is refused. Equal objects make an \
equal file, byte for byte. Keys that no file can stand for (a/../b, a//b, a and a/b at once) are left out with a \
warning and exit code 2: docs/names.md. --left-out FILE has all of them. Mounts go on with the index that they show: \
flatout volume update changes them.";

pub const VOLUME_MOUNT: &str = "\
Examples:
  flatout volume mount train.flat /mnt/train
  flatout volume mount s3://bucket/indexes/train.flat /mnt/train
  flatout volume mount s3://bucket/train/ /mnt/train
  flatout volume mount train.flat /mnt/train --supervise --metrics 9100

As root on Linux 6.12.7 or later, the kernel itself shows the names (EROFS), and asks for bytes alone. Otherwise FUSE \
shows them from the same index, and a line says why. A mount of root's shows them to every user of the machine. \
flatout umount ends either. What the folder shows is what the \
index says; flatout volume update changes that.";

pub const VOLUME_LS: &str = "\
Examples:
  flatout volume ls train.flat
  flatout volume ls train.flat images/cats -lH
  flatout volume ls s3://bucket/indexes/train.flat -r";

pub const VOLUME_INFO: &str = "\
Examples:
  flatout volume info train.flat";

pub const VOLUME_VERIFY: &str = "\
Examples:
  flatout volume verify train.flat
  flatout volume verify train.flat --objects";

pub const VOLUME_UPDATE: &str = "\
Examples:
  flatout volume update train.flat
  flatout volume update s3://bucket/train/

Open files of a mount keep the version that they were opened at. This user's mounts of the file change to the new \
index by themselves, unless they are supervised. An index of some names, or of an inventory, needs --names or \
--inventory again; without these it becomes one of all that lies there.";

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use clap::{Command, CommandFactory, Parser};

    use crate::args::Line;

    /// Every command of the tree with the text below its flags.
    fn below_flags(command: &Command, texts: &mut Vec<(String, String)>) {
        let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        texts.push((command.get_name().to_owned(), text));
        for each in command.get_subcommands().filter(|each| !each.is_hide_set()) {
            below_flags(each, texts);
        }
    }

    fn texts() -> Vec<(String, String)> {
        let mut texts = Vec::new();
        below_flags(&Line::command(), &mut texts);
        texts
    }

    /// What the shell would give to the program: its words up to a pipe, a redirection or a comment, behind
    /// those of whatever feeds it.
    #[track_caller]
    fn check_line(line: &str) {
        let words = shlex::split(line).unwrap_or_else(|| panic!("no shell reads this: {line}"));
        let words = words.into_iter().skip_while(|word| word != "flatout");
        let words: Vec<String> = words.take_while(|word| !["|", ">", "&"].contains(&word.as_str())).collect();
        if let Err(refused) = Line::try_parse_from(&words) {
            panic!("{line}\n{refused}");
        }
    }

    #[test]
    fn every_example_is_a_command_line() {
        let mut count = 0;
        for (name, text) in texts() {
            let examples = text.split("\n\n").filter(|piece| piece.starts_with("Examples:"));
            let lines: Vec<&str> = examples.flat_map(str::lines).skip(1).collect();
            let has_flags_of_its_own = !["path", "version", "doctor"].contains(&name.as_str());
            assert!(!lines.is_empty() || !has_flags_of_its_own, "{name} has no examples");
            for line in lines {
                check_line(line);
                count += 1;
            }
        }
        assert!(count > 30, "{count}");
    }

    #[test]
    fn what_can_be_copied_fits_a_narrow_terminal() {
        for (name, text) in texts() {
            for line in text.lines().filter(|line| line.starts_with("  ")) {
                assert!(line.chars().count() <= 80, "{name}: {line}");
            }
        }
    }

    /// README, and all pages of docs and bench.
    fn pages() -> Vec<PathBuf> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let of = |folder: &Path| -> Vec<PathBuf> {
            let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
            entries.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
        };
        [of(&root), of(&root.join("docs")), of(&root.join("docs/decisions")), of(&root.join("bench"))]
            .concat()
    }

    #[test]
    fn every_command_line_of_the_pages_is_one() {
        let mut count = 0;
        for page in pages() {
            let text = fs::read_to_string(&page).unwrap();
            for line in text.lines().map(str::trim_start).filter(|line| line.starts_with("flatout ")) {
                // A sentence that begins so is none.
                if line.ends_with(['.', ',', ':', ';', ')']) || line.contains(['`', '…', '·']) {
                    continue;
                }
                check_line(line);
                count += 1;
            }
        }
        assert!(count >= 8, "{count}");
    }

    /// In running text: `flatout bench get --floor` names a command and a flag that there are.
    #[test]
    fn commands_and_flags_that_the_pages_name_exist() {
        let mut top = Line::command();
        top.build();
        let mut count = 0;
        for page in pages() {
            let text = fs::read_to_string(&page).unwrap();
            for code in text.split('`').skip(1).step_by(2).filter_map(|code| code.strip_prefix("flatout ")) {
                let mut words = code.split_whitespace().peekable();
                let mut command = &top;
                while let Some(found) = words.peek().and_then(|word| command.find_subcommand(word)) {
                    command = found;
                    words.next();
                }
                let page = page.display();
                assert!(
                    command.get_name() != "flatout" || words.peek().is_none_or(|word| word.starts_with('-')),
                    "{page}: flatout {code}"
                );
                for word in words.take_while(|word| *word != "|") {
                    let Some(flag) = word.strip_prefix("--") else { continue };
                    let flag = flag.split(['=', ',', '.']).next().unwrap_or_default();
                    let known = command.get_arguments().any(|arg| arg.get_long() == Some(flag));
                    assert!(known, "{page}: flatout {code}: there is no --{flag}");
                    count += 1;
                }
            }
        }
        assert!(count >= 5, "{count}");
    }
}
