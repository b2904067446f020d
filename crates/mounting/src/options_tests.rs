//! Options by the class: what mount(8) passes, our knobs, ossfs 2.0's names, and what is none of them.

use super::*;

#[track_caller]
fn taken(list: &str) -> MountOptions {
    MountOptions::parse(&[list.to_owned()], false).unwrap_or_else(|failure| panic!("{list}: {failure}"))
}

#[track_caller]
fn check_refused(list: &str, says: &[&str]) {
    let error = MountOptions::parse(&[list.to_owned()], false).expect_err(list);
    let shown = format!("{error}\n  hint: {}", error.hint.as_deref().unwrap_or("none"));
    for part in says {
        assert!(shown.contains(part), "{list}: {shown} lacks {part:?}");
    }
}

#[test]
fn what_mount_8_passes_is_taken() {
    let words = "ro,nofail,noauto,auto,_netdev,user,defaults,x-systemd.automount,x-gvfs-name=a b,comment=c";
    let read_only = MountOptions { knobs: vec![("read-only", "true".into())], ..MountOptions::default() };
    assert_eq!(taken(words), read_only);
    assert_eq!(taken("noatime,nosuid,nodev,noexec").system, ["noatime", "nosuid", "nodev", "noexec"]);
    let flags = taken("default_permissions,foreground,nonempty,allow_other");
    assert!(!flags.no_permissions && flags.foreground && flags.nonempty);
    assert!(taken("default_permissions=false").no_permissions);
    assert_eq!(flags.knobs, [("allow-other", "true".to_owned())]);
    assert_eq!(taken(""), MountOptions::default());
    assert_eq!(taken(",,ro,"), read_only);
}

#[test]
fn a_mount_is_written_to_unless_it_says_otherwise() {
    let read_only = |list: &str| {
        let mut settings = Settings::default();
        for (name, value) in taken(list).knobs {
            settings.set(name, &value).unwrap();
        }
        settings.mount.read_only
    };
    let table =
        [("", false), ("rw", false), ("ro", true), ("rw,ro", true), ("ro,rw", true), ("read-only", true)];
    for (list, expected) in table {
        assert_eq!(read_only(list), expected, "{list}");
    }
    assert!(!read_only("ro=false"));
}

#[test]
fn every_knob_is_an_option() {
    for knob in KNOBS {
        let value = match knob.default {
            "" if knob.kind == Kind::Switch => "true",
            "" => "x",
            default => default,
        };
        let underscored = knob.name.replace('-', "_");
        for name in [knob.name, &underscored] {
            assert_eq!(taken(&format!("{name}={value}")).knobs, [(knob.name, value.to_owned())], "{name}");
        }
    }
    let many = taken("memory=512MiB,attribute_lifetime=10s,close-to-open,bind=10.0.0.1,uid=0");
    let names: Vec<&str> = many.knobs.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["memory", "attribute-lifetime", "close-to-open", "bind", "uid"]);
}

#[test]
fn quotes_keep_commas() {
    let quoted = taken(r#"resolve="a:10.0.0.1,10.0.0.2",nofail"#);
    assert_eq!(quoted.knobs, [("resolve", "a:10.0.0.1,10.0.0.2".to_owned())]);
}

#[test]
fn several_lists_are_one() {
    let both = MountOptions::parse(&["uid=1".into(), "gid=2,file_mode=400".into()], false).unwrap();
    let value = |value: &str| value.to_owned();
    assert_eq!(both.knobs, [("uid", value("1")), ("gid", value("2")), ("file-mode", value("400"))]);
}

#[test]
fn what_contradicts_is_refused_and_names_both() {
    check_refused("uid=1,uid=3", &["-o uid=3: contradicts uid=1", "leave one of them out"]);
    let apart =
        MountOptions::parse(&["attribute_lifetime=1s".into(), "attr_timeout=60".into()], false).unwrap_err();
    assert!(apart.message.contains("attr_timeout=60: contradicts attribute_lifetime=1s"), "{apart}");
    check_refused("negative_timeout=0,oss_negative_cache_timeout=5", &["contradicts negative_timeout=0"]);
    check_refused("allow_other,allow-other=false", &["allow-other=false: contradicts allow_other"]);
    check_refused("foreground,f=false", &["f=false: contradicts foreground"]);
    check_refused("metrics=9100,metrics_port=9101", &["contradicts metrics=9100"]);
    check_refused("log=/a,log=/b", &["log=/b: contradicts log=/a"]);
    check_refused("proxy=http://u:hunter2hunter2@p:1,proxy=http://p:1", &["contradicts proxy="]);
    let secret = MountOptions::parse(&["proxy=http://u:hunter2hunter2@p:1,proxy=http://p:1".into()], false)
        .unwrap_err();
    assert!(!secret.message.contains("hunter2"), "{secret}");
}

#[test]
fn what_is_said_twice_and_the_same_is_no_contradiction() {
    taken("uid=1,uid=1");
    taken("memory=1GiB,total_mem_limit=1073741824");
    taken("foreground,f=true,allow_other,allow-other=true");
    assert_eq!(taken("bind=10.0.0.1,bind=10.0.0.2").knobs.len(), 2);
    assert_eq!(taken("user,exec,noexec,exec").system, ["exec", "noexec", "exec"]);
    // mount(8) puts what is typed behind what fstab says.
    let knobs = MountOptions::parse(&["memory=1GiB,rw,memory=2GiB".into()], true).unwrap().knobs;
    assert_eq!(knobs.last(), Some(&("memory", "2GiB".to_owned())));
}

#[test]
fn words_take_no_value() {
    check_refused("ro=yes", &["-o ro: takes no value: write ro alone"]);
    check_refused("rw=1", &["-o rw=1: rw takes no value: write rw alone"]);
    check_refused("nosuid=false", &["nosuid takes no value"]);
    check_refused("_netdev=x", &["_netdev takes no value"]);
    assert_eq!(taken("ro=true,user=me,x-a=b,comment=c,uhelper=udisks2"), taken("ro"));
    assert_eq!(taken("ro=false"), taken("rw"));
}

#[test]
fn names_of_ossfs_are_understood() {
    let check = |list: &str, knob: &'static str, value: &str| {
        assert_eq!(taken(list).knobs, [(knob, value.to_owned())], "{list}");
    };
    check("attr_timeout=60", "attribute-lifetime", "60s");
    check("negative_timeout=0", "negative-lifetime", "0s");
    check("oss_endpoint=oss-cn-hangzhou.aliyuncs.com", "oss-endpoint", "oss-cn-hangzhou.aliyuncs.com");
    check("path_style=true", "addressing", "path");
    check("total_mem_limit=1073741824", "memory", "1073741824");
    check("total_mem_limit=0", "memory", "auto");
    check("dir_mode=0777", "dir-mode", "0777");
    check("allow_other=false", "allow-other", "false");
    check("oss_request_timeout_ms=60000", "stall-timeout", "60000ms");
    assert!(taken("f").foreground);
    assert_eq!(taken("metrics_port=9100").metrics, Some("127.0.0.1:9100".parse().unwrap()));
    assert_eq!(taken("metrics_port=0").metrics, None);
    assert_eq!(taken("readdirplus=true,fuse_attr_timeout=-1,metrics_ip=127.0.0.1"), MountOptions::default());
}

/// What was copied from a configuration with every default in it, as far as that is so here.
#[test]
fn what_holds_anyway_may_be_stated() {
    let stated = "ignore_fsync=true,d=false,enable_xattr=false,fuse_device_fd=-1,auto_create_bucket=false,\
                  credential_refresh_interval=0,memory_data_cache_size=0,disk_data_cache_size=0,prefetch_chunks=0,\
                  enable_appendable_object=False,set_mime_for_rename_dst=0,ram_role=,oss_bucket_prefix=";
    assert_eq!(taken(stated), MountOptions::default());
    check_refused("d", &["-o d: ", "log=FILE"]);
    check_refused("sync_upload=false", &["close publishes"]);
    check_refused("memory_data_cache_size=1", &["memory=SIZE"]);
    check_refused("fuse_device_fd=7", &["/dev/fd/N"]);
    check_refused("ram_role=x", &["role of the machine"]);
    check_refused("oss_bucket_prefix=x", &["oss://BUCKET/PREFIX"]);
}

#[test]
fn names_of_ossfs_that_mean_nothing_are_refused_by_name() {
    check_refused("oss_access_key_secret=hunter2hunter2", &["oss_access_key_secret", "OSS_ACCESS_KEY_ID"]);
    let secret =
        MountOptions::parse(&["oss_access_key_secret=hunter2hunter2".into()], false).unwrap_err().to_string();
    assert!(!secret.contains("hunter2"), "{secret}");
    check_refused("upload_concurrency=64", &["upload_concurrency", "parallel=N"]);
    check_refused("disk_data_cache_dir=/x", &["disk_data_cache_dir", "no cache on disk"]);
    check_refused("oss_bucket=models", &["oss_bucket", "oss://BUCKET"]);
    check_refused("readdirplus=false", &["readdirplus", "listing"]);
    check_refused("attr_timeout=-1", &["attr_timeout", "write seconds"]);
    check_refused("attr_timeout=99999999999", &["attr_timeout", "out of bounds"]);
    check_refused("metrics_port=x", &["metrics_port", "65535"]);
}

#[test]
fn masks_are_permission_bits() {
    let check = |list: &str, want: &[(&'static str, &str)]| {
        let want: Vec<(&str, String)> = want.iter().map(|(name, bits)| (*name, (*bits).to_owned())).collect();
        assert_eq!(taken(list).knobs, want, "{list}");
    };
    check("umask=022", &[("file-mode", "0755"), ("dir-mode", "0755")]);
    check("fmask=0133", &[("file-mode", "0644")]);
    check("dmask=22", &[("dir-mode", "0755")]);
    // One of their own is stronger, wherever it stands.
    check("umask=0,fmask=133", &[("file-mode", "0644"), ("dir-mode", "0777")]);
    check("file_mode=0444,umask=022", &[("file-mode", "0444"), ("dir-mode", "0755")]);
    check("dmask=077,umask=022,fmask=333", &[("dir-mode", "0700"), ("file-mode", "0444")]);
    taken("umask=022,umask=0022,fmask=0333,file_mode=0444");
    check_refused("umask=022,umask=027", &["umask=027: contradicts umask=022"]);
    check_refused("fmask=022,file_mode=0444", &["file_mode=0444: contradicts fmask=022"]);
    check_refused("umask", &["-o umask: a value is missing: write bits in octal"]);
    check_refused("fmask=rx", &["-o fmask: 'rx' is no mask of permission bits in octal"]);
}

#[test]
fn names_of_libfuse_and_others_are_understood() {
    let check = |list: &str, knob: &'static str, value: &str| {
        let chosen = taken(list);
        assert_eq!((chosen.knobs, chosen.notes), (vec![(knob, value.to_owned())], vec![]), "{list}");
    };
    check("attr_timeout=1.0", "attribute-lifetime", "1s");
    check("entry_timeout=2.8", "attribute-lifetime", "2.8s");
    check("negative_timeout=0.0", "negative-lifetime", "0s");
    check("direct_io", "direct-bytes", "1");
    check("max_readahead=131072", "kernel-readahead", "131072");
    check("max_background=64", "max-background", "64");
    check("max_threads=4", "fuse-threads", "4");
    check("use_path_request_style", "addressing", "path");
    check("public_bucket=1", "no-sign-request", "true");
    check("stat_cache_expire=30", "attribute-lifetime", "30s");
    check("force-path-style", "addressing", "path");
    check("metadata-ttl=60", "attribute-lifetime", "60s");
    check("metadata_ttl=60", "attribute-lifetime", "60s");
    check("--stat-cache-ttl=1m", "attribute-lifetime", "1m");
    check("--file-mode=0666", "file-mode", "0666");
    let url = "https://minio:9000".to_owned();
    assert_eq!(taken("url=https://minio:9000").knobs, [("endpoint-url", url.clone()), ("oss-endpoint", url)]);
    assert_eq!(taken("read-only,logfile=/x").log, Some("/x".into()));
    assert_eq!(
        taken("readdirplus=auto,servicepath=/,iam_role=auto,nosymfollow,lazytime"),
        MountOptions::default()
    );
    check_refused("attr_timeout=1.0,entry_timeout=10", &["entry_timeout=10: contradicts attr_timeout=1.0"]);
    taken("attr_timeout=1.0,entry_timeout=1");
}

/// One line, however many there are.
#[test]
fn what_has_no_effect_is_taken_with_one_line() {
    let notes = |list: &str| {
        let chosen = taken(list);
        assert_eq!(chosen.knobs, [], "{list}");
        chosen.notes
    };
    assert_eq!(notes("nonempty"), [""; 0]);
    let said = notes("big_writes,big_writes");
    assert_eq!(said.len(), 1);
    assert!(said[0].starts_with("-o big_writes: has no effect here: requests are as long"), "{said:?}");
    let many = "auto_cache,noauto_cache,kernel_cache,big_writes,max_read=131072,intr,use_ino,async_read,splice_read,\
                auto_unmount,ac_attr_timeout=5,clone_fd,max_idle_threads=3,hard_remove,noforget,fsname=x,subtype=y,\
                norellinks,complement_stat,del_cache,max_dirty_data=5120,parallel_count=5";
    let said = notes(many);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(
        said[0].contains("auto_cache, noauto_cache, kernel_cache, ")
            && said[0].contains("docs/from-libfuse.md")
    );
}

#[test]
fn what_would_be_missed_is_refused_by_name() {
    check_refused("modules=iconv", &["-o modules: there are no modules"]);
    check_refused("subdir=/x", &["-o subdir: ", "s3://BUCKET/PREFIX"]);
    check_refused("use_cache=/tmp/x", &["no cache on disk"]);
    check_refused("passwd_file=/etc/passwd-s3fs", &["-o passwd_file: keys come from", "profile=NAME"]);
    check_refused("endpoint=eu-west-1", &["region=NAME", "endpoint-url=URL"]);
    check_refused("storage_class=standard_ia", &["as their bucket says"]);
    check_refused("fd=5", &["/dev/fd/N"]);
    check_refused("rellinks", &["-o rellinks: attributes=metadata shows links as they were made"]);
    check_refused("nocopyapi", &["-o nocopyapi: the service copies objects"]);
    check_refused("update_parent_dir_stat", &["a folder keeps its time"]);
    check_refused("compat_dir", &["NAME_$folder$ is shown as a file"]);
    check_refused("proxy_cred_file=/x", &["proxy=http://USER:PASSWORD@HOST:PORT"]);
    check_refused("random_write_max_file_size=1", &["staging-size=SIZE"]);
    check_refused("enable_symlink", &["attributes=metadata"]);
    check_refused("kernel_cahce", &["is no option", "did you mean 'kernel_cache'?"]);
    check_refused("fmaks=022", &["'fmask'"]);
    assert_eq!(taken("use_cache=,passwd_file="), MountOptions::default());
}

#[test]
fn what_is_no_option_has_the_nearest_name() {
    check_refused("memroy=1GiB", &["-o memroy: is no option", "did you mean 'memory'?"]);
    check_refused("alow_other", &["alow_other", "'allow-other'"]);
    check_refused("attr_timeot=1", &["attr_timeot", "hint: did you mean"]);
    check_refused("frobnicate=1", &["frobnicate", "hint: none"]);
    check_refused("allow_root", &["allow_root", "allow_other"]);
    check_refused("remount", &["unmount it"]);
    check_refused("bind", &["mount --bind"]);
    assert_eq!(taken("sloppy,frobnicate=1").notes, ["-o frobnicate: is no option"]);
    check_refused("sloppy,memory=x", &["memory", "not a size"]);
}

#[test]
fn values_that_are_none_say_what_to_write() {
    check_refused("memory", &["-o memory: a value is missing: write memory=SIZE"]);
    check_refused("memory=", &["a value is missing"]);
    check_refused("memory=1", &["-o memory: 1B is out of bounds"]);
    check_refused("attribute_lifetime=5", &["-o attribute-lifetime: '5' is not a duration"]);
    check_refused("uid=root", &["-o uid: 'root' is not a whole number"]);
    check_refused("close_to_open=maybe", &["not a switch"]);
    check_refused("foreground=maybe", &["-o foreground", "not a switch"]);
    check_refused("metrics=here", &["-o metrics: 'here': write a port, 1 to 65535"]);
    check_refused("metrics=99999", &["-o metrics: '99999': write a port, 1 to 65535"]);
    assert_eq!(taken("metrics=9100").metrics, Some("127.0.0.1:9100".parse().unwrap()));
    check_refused("log", &["-o log: a value is missing: write log=FILE"]);
}
