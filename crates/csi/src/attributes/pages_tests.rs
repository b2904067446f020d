//! The pages that are generated from the tables of keys.

use std::fmt::Write;
use std::path::Path;

use super::table::{Key, Meaning, TABLES};

const ACK: &str = "\
# Coming from ACK's CSI driver (ossfs 1.0 and 2.0)

A volume of `ossplugin.csi.alibabacloud.com` runs here with the driver's name changed:

    # driver: ossplugin.csi.alibabacloud.com
    driver: csi.flatout.dev

Kubernetes lets nobody change the driver of a PersistentVolume or the provisioner of a storage class
that exists. Either make them anew, claim by claim:

1. End the pods that use the claim. Set `persistentVolumeReclaimPolicy: Retain` in the PV, so that
   nothing is deleted in the bucket.
2. Save both: `kubectl get pv NAME -o yaml`, `kubectl get pvc CLAIM -o yaml`. Change `driver` (of a
   storage class `provisioner`); remove `status`, `metadata.uid`, `metadata.resourceVersion` and
   `spec.claimRef.uid`.
3. `kubectl delete pvc CLAIM`, `kubectl delete pv NAME`, and apply what was saved.

Or keep the driver's name, and change nothing: [deploy/README.md](../deploy/README.md) has the
steps, with `driverName: ossplugin.csi.alibabacloud.com` of the chart. A node can have one driver of
that name. A volume in use stays with ACK's driver until the pods that use it have ended.

A role for RRSA must trust other service accounts than ACK's `ack-csi-fuse:csi-fuse-ossfs`:
[kubernetes.md](kubernetes.md), \"Roles\".

What differs:

- There is no pod for each volume: one engine of each node serves them all. It has no privileges,
  and its death does not break volumes. What placed or sized the pods (`dnsPolicy`,
  `serviceAccountName`, the ConfigMaps `fuse-ossfs` and `fuse-ossfs2`) is in the chart's values.
- `mountOptions` of a PV count for ossfs 2.0, too. Where both set an option, `otherOpts` win.
- Keys of a Secret may change: kubelet's next call, a minute later, brings them, without a remount.
- `authType: rrsa` uses the engine's service account; with `authenticationSource: pod` it is the
  workload's own.
- Options mean what [from-ossfs.md](from-ossfs.md) (2.0 and 1.0) and
  [from-libfuse.md](from-libfuse.md) (what 1.0 has of s3fs) say. One that would be missed is refused
  by name, and the pod's events say which.

Keys are found in any case, and blanks around values do not count. An empty value is none. This page
is generated: `FLATOUT_BLESS=1 cargo test -p flatout-csi pages` writes it.
";

const MOUNTPOINT: &str = "\
# Coming from the Mountpoint for Amazon S3 CSI driver

A volume of `s3.csi.aws.com` runs here with the driver's name changed:

    # driver: s3.csi.aws.com
    driver: csi.flatout.dev

Kubernetes lets nobody change the driver of a PersistentVolume that exists. End its pods; save the
YAML of PV and claim, change `driver`, remove `status`, `metadata.uid`, `metadata.resourceVersion`
and `spec.claimRef.uid`; delete the claim and the PV; apply what was saved. Nothing in the bucket is
touched. Or remove mountpoint's driver, and install the chart with `driverName: s3.csi.aws.com`.

What differs:

- There is no pod for each volume, and no resource of its own in the cluster: one engine of each
  node serves all volumes, and goes on with them when it is upgraded or dies.
- `mountOptions` are mountpoint's flags, with or without dashes: `allow-delete`, `region us-west-2`,
  `prefix a/`. [from-libfuse.md](from-libfuse.md) says what each means; one that means
  nothing is refused by name. Deleting and overwriting are allowed unless the volume is read-only.
- Keys may stand in a Secret of each volume (`nodePublishSecretRef`), under mountpoint's names
  `key_id`, `access_key` and `session_token`.
- `authenticationSource: pod` is the role in the annotation `eks.amazonaws.com/role-arn` of the
  pod's service account (IRSA), else EKS Pod Identity. `roleArn` names another role.
- There are dynamic volumes, inline volumes, and `fsGroup`.

Keys are found in any case. This page is generated:
`FLATOUT_BLESS=1 cargo test -p flatout-csi pages` writes it.
";

const OWN: &str = "\
# What a volume may say of itself

These keys stand in `volumeAttributes` of a PV or an inline volume, and in `parameters` of a storage
class. So does every setting of [settings.md](settings.md) by its name, also written as Kubernetes
writes names: `endpoint-url`, `endpointUrl`. `mountOptions` of a PV take settings and the options of
other mounts. Keys are found in any case; a key that nobody knows is refused with the nearest name.

The keys of ACK's driver and of mountpoint's stand below; they may be mixed.
[kubernetes.md](kubernetes.md) says how they are used. This page is generated:
`FLATOUT_BLESS=1 cargo test -p flatout-csi pages` writes it.
";

fn rows(page: &mut String, keys: &[Key]) {
    page.push_str("\n| key | here |\n|---|---|\n");
    for key in keys {
        let here = match key.meaning {
            Meaning::Read(_, what) => what.to_owned(),
            Meaning::Is(values, why) => {
                let value = values.last().copied().unwrap_or_default();
                format!("is `{value}`; else refused: {why}")
            }
            Meaning::Refused(why) => format!("refused: {why}"),
        };
        let _ = writeln!(page, "| `{}` | {here} |", key.name);
    }
}

fn page(name: &str) -> String {
    let (head, titles): (&str, &[&str]) = match name {
        "from-ack-ossfs2.md" => (ACK, &["ACK"]),
        "from-mountpoint-csi.md" => (MOUNTPOINT, &["mountpoint"]),
        _ => (OWN, &["Flatout", "ACK", "mountpoint"]),
    };
    let mut page = head.to_owned();
    for table in TABLES.iter().filter(|table| titles.contains(&table.title)) {
        if titles.len() > 1 && table.title != "Flatout" {
            let _ = write!(page, "\n## Keys of {}'s driver\n", table.title);
        }
        rows(&mut page, table.keys);
    }
    page
}

#[test]
fn the_pages_are_what_the_tables_say() {
    for name in ["from-ack-ossfs2.md", "from-mountpoint-csi.md", "volume-attributes.md"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
        if std::env::var_os("FLATOUT_BLESS").is_some() {
            std::fs::write(&path, page(name)).unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(written == page(name), "FLATOUT_BLESS=1 cargo test -p flatout-csi pages writes docs/{name}");
    }
}
