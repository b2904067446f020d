// Kubernetes on one machine, for a driver of volumes: the real API server with an etcd, and the real kubelet
// with its real mounts. Containers are faked: a process in a mount namespace that has the mounts which kubelet
// asks for, and a root made of the machine's /usr. No image, no network, no cgroup, no controller.
//
//	kubernetes api      --folder DIR --port N
//	kubernetes runtime  --folder DIR
//	kubernetes kubelet  --folder DIR --port N --read-port N [--sync TIME] [-v N]
//	kubernetes register --folder DIR --driver NAME --socket FILE
//
// All share DIR, each ends with SIGTERM, and each may be started again. DIR/kubelet is kubelet's root and must
// lie on a shared mount. try.py starts them and plays the rest of a cluster.
package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"log"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	cadvisor "github.com/google/cadvisor/info/v2"
	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericapiserver "k8s.io/apiserver/pkg/server"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-client/pkg/fake"
	"k8s.io/klog/v2"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	cadvisortest "k8s.io/kubernetes/pkg/kubelet/cadvisor/testing"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/util/oom"
)

const nodeName = "node-1"

// Who calls the API server: try.py, and kubelet, which has the rights of its node and no others.
const users = `admin,admin,admin,system:masters
kubelet,system:node:` + nodeName + `,kubelet,system:nodes
`

func main() {
	parts := map[string]func([]string) error{"api": api, "runtime": runtime, "kubelet": node, "register": register}
	if len(os.Args) < 2 || parts[os.Args[1]] == nil {
		log.Fatal("kubernetes api|runtime|kubelet|register")
	}
	if err := parts[os.Args[1]](os.Args[2:]); err != nil {
		log.Fatal(err)
	}
}

// The API server, with RBAC and the authorizer of nodes, on an etcd of its own.
func api(arguments []string) error {
	flags := flag.NewFlagSet("api", flag.ExitOnError)
	folder := flags.String("folder", "", "where everything lies")
	port := flags.Int("port", 0, "where it answers, on loopback")
	flags.Parse(arguments)

	in := func(name string) string { return filepath.Join(*folder, name) }
	store, err := etcd(in("etcd"))
	if err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	if err := writeKey(in("accounts.key")); err != nil {
		return err
	}
	if err := os.WriteFile(in("users.csv"), []byte(users), 0o600); err != nil {
		return err
	}
	server := apiserver.NewAPIServerCommand()
	server.SetArgs([]string{
		"--etcd-servers=" + store,
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", *port),
		"--cert-dir=" + in("certificates"),
		"--token-auth-file=" + in("users.csv"),
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--service-account-issuer=https://kubernetes.test",
		"--service-account-key-file=" + in("accounts.key"),
		"--service-account-signing-key-file=" + in("accounts.key"),
		"--service-cluster-ip-range=10.0.0.0/24",
		// Nobody reaches it from elsewhere.
		"--advertise-address=192.0.2.1",
		"--endpoint-reconciler-type=none",
		"--allow-privileged",
	})
	return server.Execute()
}

// An etcd in this process: where it answers.
func etcd(folder string) (string, error) {
	config := embed.NewConfig()
	config.Dir, config.LogLevel, config.UnsafeNoFsync = folder, "error", true
	clients, err := freeAddress()
	if err != nil {
		return "", err
	}
	peers, err := freeAddress()
	if err != nil {
		return "", err
	}
	config.ListenClientUrls, config.AdvertiseClientUrls = clients, clients
	config.ListenPeerUrls, config.AdvertisePeerUrls = peers, peers
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	server, err := embed.StartEtcd(config)
	if err != nil {
		return "", err
	}
	<-server.Server.ReadyNotify()
	return clients[0].String(), nil
}

func freeAddress() ([]url.URL, error) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer free.Close()
	return []url.URL{{Scheme: "http", Host: free.Addr().String()}}, nil
}

// The key that signs tokens of service accounts.
func writeKey(path string) error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	block := pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
	return os.WriteFile(path, pem.EncodeToMemory(&block), 0o600)
}

// Kubelet as its own command makes it, but for the container manager (cgroups), cAdvisor, and scores for the
// kernel's OOM killer.
func node(arguments []string) error {
	flags := flag.NewFlagSet("kubelet", flag.ExitOnError)
	folder := flags.String("folder", "", "where everything lies")
	port := flags.Int("port", 0, "where the API server answers")
	readPort := flags.Int("read-port", 0, "where kubelet answers: /stats/summary, /metrics, /pods")
	period := flags.Duration("sync", 5*time.Second, "how often it looks at each pod, and publishes its volumes again")
	klog.InitFlags(flags)
	flags.Parse(arguments)

	ctx := genericapiserver.SetupSignalContext()
	in := func(name string) string { return filepath.Join(*folder, name) }
	// Kubelet removes the logs of a container by the path that its runtime says. Were that path empty, as the
	// fake runtime's is, it would remove whatever lies in the folder where it runs.
	if err := os.MkdirAll(in("empty"), 0o700); err != nil {
		return err
	}
	if err := os.Chdir(in("empty")); err != nil {
		return err
	}
	kubeconfig := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:%d", "insecure-skip-tls-verify": true}}],
		"users": [{"name": "u", "user": {"token": "kubelet"}}],
		"contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}`, *port)
	if err := os.WriteFile(in("kubelet.conf"), []byte(kubeconfig), 0o600); err != nil {
		return err
	}
	config, err := options.NewKubeletConfiguration()
	if err != nil {
		return err
	}
	config.ContainerRuntimeEndpoint = "unix://" + in("runtime.sock")
	config.EnableServer, config.HealthzPort = false, 0
	config.Address, config.ReadOnlyPort = "127.0.0.1", int32(*readPort)
	config.Authentication.Webhook.Enabled = false
	config.Authorization.Mode = kubeletconfig.KubeletAuthorizationModeAlwaysAllow
	config.SyncFrequency = metav1.Duration{Duration: *period}
	config.VolumeStatsAggPeriod = metav1.Duration{Duration: *period}
	config.PodLogsDir = in("logs")
	config.ResolverConfig = ""
	config.CgroupsPerQOS, config.EnforceNodeAllocatable, config.FailCgroupV1 = false, nil, false
	config.FailSwapOn, config.EvictionHard = false, nil
	server := &options.KubeletServer{KubeletFlags: *options.NewKubeletFlags(), KubeletConfiguration: *config}
	server.KubeConfig, server.RootDirectory, server.CertDirectory = in("kubelet.conf"), in("kubelet"), in("certificates")
	server.HostnameOverride, server.VolumePluginDir = nodeName, in("flexvolumes")

	// The real mounter, the real code for subPath, and all volume plugins.
	parts, err := kubelet.UnsecuredDependencies(ctx, server, utilfeature.DefaultFeatureGate)
	if err != nil {
		return err
	}
	parts.CAdvisorInterface = &machine{}
	parts.ContainerManager = cm.NewStubContainerManager()
	parts.OOMAdjuster = oom.NewFakeOOMAdjuster()
	return kubelet.Run(ctx, server, parts, utilfeature.DefaultFeatureGate)
}

// A machine with much of everything, so that kubelet neither evicts pods nor refuses to sum up.
type machine struct{ cadvisortest.Fake }

func (*machine) ContainerInfoV2(name string, _ cadvisor.RequestOptions) (map[string]cadvisor.ContainerInfo, error) {
	now := []*cadvisor.ContainerStats{{Timestamp: time.Now()}}
	return map[string]cadvisor.ContainerInfo{name: {Stats: now}}, nil
}

func (*machine) GetDirFsInfo(string) (cadvisor.FsInfo, error)             { return disk(), nil }
func (*machine) RootFsInfo() (cadvisor.FsInfo, error)                     { return disk(), nil }
func (*machine) ImagesFsInfo(context.Context) (cadvisor.FsInfo, error)    { return disk(), nil }
func (*machine) ContainerFsInfo(context.Context) (cadvisor.FsInfo, error) { return disk(), nil }

func disk() cadvisor.FsInfo {
	inodes := uint64(1 << 20)
	return cadvisor.FsInfo{Capacity: 1 << 40, Available: 1 << 40, Inodes: &inodes, InodesFree: &inodes}
}

// The runtime of the containers. It outlives kubelet, as a real one does.
func runtime(arguments []string) error {
	flags := flag.NewFlagSet("runtime", flag.ExitOnError)
	folder := flags.String("folder", "", "where everything lies")
	flags.Parse(arguments)

	all := &containers{
		RemoteRuntime: fake.NewFakeRemoteRuntime(),
		folder:        filepath.Join(*folder, "containers"),
		asked:         map[string]*cri.ContainerConfig{},
		running:       map[string]*running{},
	}
	isReady := []*cri.RuntimeCondition{{Type: cri.RuntimeReady, Status: true}, {Type: cri.NetworkReady, Status: true}}
	all.RuntimeService.FakeStatus = &cri.RuntimeStatus{Conditions: isReady}
	images := &cri.FilesystemUsage{
		FsId: &cri.FilesystemIdentifier{Mountpoint: "/"}, UsedBytes: &cri.UInt64Value{}, InodesUsed: &cri.UInt64Value{},
	}
	all.ImageService.SetFakeFilesystemUsage([]*cri.FilesystemUsage{images})
	server := grpc.NewServer()
	cri.RegisterRuntimeServiceServer(server, all)
	cri.RegisterImageServiceServer(server, all)
	defer all.end()
	return serve(server, filepath.Join(*folder, "runtime.sock"))
}

// Until SIGTERM.
func serve(server *grpc.Server, socket string) error {
	os.Remove(socket)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	go func() {
		<-signals
		server.Stop()
	}()
	return server.Serve(listener)
}

// Containers that are processes with mounts, and no more.
type containers struct {
	*fake.RemoteRuntime
	folder string

	lock    sync.Mutex
	asked   map[string]*cri.ContainerConfig
	running map[string]*running
}

type running struct {
	process *os.Process
	ended   chan struct{}
}

// What try.py wants to know of a container: DIR/containers/POD.CONTAINER.json.
type description struct {
	Pid    int
	Mounts []mount
}

type mount struct {
	Source, Path, Rights, Propagation string
}

// A new root with the mounts that kubelet wants: each is SOURCE PATH ro|rw PROPAGATION.
const start = `
set -e
root=$1; shift
mount -t tmpfs container "$root"
cd "$root"
mkdir old usr proc
mount --rbind /usr usr
mount --rbind /proc proc
for each in bin sbin lib lib64; do ln -s "usr/$each" "$each"; done
while [ $# -gt 0 ]; do
    if [ -d "$1" ]; then mkdir -p ".$2"; else mkdir -p "$(dirname ".$2")"; : > ".$2"; fi
    mount --rbind "$1" ".$2"
    mount "--make-$4" ".$2"
    if [ "$3" = ro ]; then mount -o remount,bind,ro ".$2"; fi
    shift 4
done
pivot_root . old
exec chroot . sh -c 'umount -l /old && echo started && exec sleep infinity'
`

func (c *containers) CreateContainer(ctx context.Context, request *cri.CreateContainerRequest) (*cri.CreateContainerResponse, error) {
	answer, err := c.RemoteRuntime.CreateContainer(ctx, request)
	if err != nil {
		return nil, err
	}
	c.lock.Lock()
	c.asked[answer.ContainerId] = request.Config
	c.lock.Unlock()
	c.RuntimeService.Lock()
	c.RuntimeService.Containers[answer.ContainerId].LogPath = filepath.Join(request.SandboxConfig.LogDirectory, request.Config.LogPath)
	c.RuntimeService.Unlock()
	return answer, nil
}

func (c *containers) StartContainer(ctx context.Context, request *cri.StartContainerRequest) (*cri.StartContainerResponse, error) {
	id := request.ContainerId
	c.lock.Lock()
	config := c.asked[id]
	c.lock.Unlock()
	if config == nil {
		return nil, fmt.Errorf("no container %s", id)
	}
	name := config.Labels["io.kubernetes.pod.name"] + "." + config.Metadata.Name
	root := filepath.Join(c.folder, name)
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, err
	}
	seen := description{}
	arguments := []string{"--mount", "--propagation", "slave", "sh", "-c", start, "container", root}
	for _, each := range config.Mounts {
		one := mount{each.HostPath, each.ContainerPath, "rw", "rprivate"}
		if each.Readonly {
			one.Rights = "ro"
		}
		switch each.Propagation {
		case cri.MountPropagation_PROPAGATION_HOST_TO_CONTAINER:
			one.Propagation = "rslave"
		case cri.MountPropagation_PROPAGATION_BIDIRECTIONAL:
			one.Propagation = "rshared"
		}
		arguments = append(arguments, one.Source, one.Path, one.Rights, one.Propagation)
		seen.Mounts = append(seen.Mounts, one)
	}
	process := exec.Command("unshare", arguments...)
	process.Stderr = os.Stderr
	output, err := process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := process.Start(); err != nil {
		return nil, err
	}
	if n, _ := output.Read(make([]byte, 8)); n == 0 {
		return nil, fmt.Errorf("%s: its mounts: %w", name, process.Wait())
	}
	now := &running{process.Process, make(chan struct{})}
	c.lock.Lock()
	c.running[id] = now
	c.lock.Unlock()
	go func() {
		process.Wait()
		close(now.ended)
		// Kubelet starts it again, unless it has ended it.
		c.RuntimeService.StopContainer(context.Background(), id, 0)
	}()
	// Without these kubelet leaves the pod out of its statistics.
	c.RuntimeService.Lock()
	attributes := &cri.ContainerAttributes{Id: id, Metadata: config.Metadata, Labels: config.Labels}
	c.RuntimeService.FakeContainerStats[id] = &cri.ContainerStats{Attributes: attributes}
	c.RuntimeService.Unlock()
	seen.Pid = now.process.Pid
	text, err := json.MarshalIndent(seen, "", "  ")
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(root+".new", text, 0o644); err != nil {
		return nil, err
	}
	if err := os.Rename(root+".new", root+".json"); err != nil {
		return nil, err
	}
	return c.RemoteRuntime.StartContainer(ctx, request)
}

func (c *containers) StopContainer(ctx context.Context, request *cri.StopContainerRequest) (*cri.StopContainerResponse, error) {
	c.kill(request.ContainerId)
	return c.RemoteRuntime.StopContainer(ctx, request)
}

func (c *containers) kill(id string) {
	c.lock.Lock()
	now := c.running[id]
	delete(c.running, id)
	c.lock.Unlock()
	if now != nil {
		now.process.Kill()
		<-now.ended
	}
}

func (c *containers) end() {
	c.lock.Lock()
	defer c.lock.Unlock()
	for _, each := range c.running {
		each.process.Kill()
	}
}

// What the driver's sidecar node-driver-registrar does: it answers kubelet beside the driver.
func register(arguments []string) error {
	flags := flag.NewFlagSet("register", flag.ExitOnError)
	folder := flags.String("folder", "", "where everything lies")
	driver := flags.String("driver", "", "the driver's name")
	endpoint := flags.String("socket", "", "where the driver answers")
	flags.Parse(arguments)

	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, &registrar{driver: *driver, endpoint: *endpoint})
	return serve(server, filepath.Join(*folder, "kubelet", "plugins_registry", *driver+"-reg.sock"))
}

type registrar struct {
	registration.UnimplementedRegistrationServer
	driver, endpoint string
}

func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: r.driver, Endpoint: r.endpoint, SupportedVersions: []string{"1.0.0"},
	}, nil
}

func (r *registrar) NotifyRegistrationStatus(_ context.Context, status *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if !status.PluginRegistered {
		log.Fatalf("kubelet does not take %s: %s", r.driver, status.Error)
	}
	log.Printf("kubelet has taken %s", r.driver)
	return &registration.RegistrationStatusResponse{}, nil
}
