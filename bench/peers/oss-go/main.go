// The OSS Go SDK v2: one object to nowhere by OpenFile with prefetch, which is the program of Alibaba's guide to
// 100 Gbit/s, or to a file by the SDK's downloader; many objects by 128 goroutines of GetObject.
//
// It talks as the lab's programs do: `ready`, `go`, `done BYTES`. Keys come from OSS_ACCESS_KEY_ID and
// OSS_ACCESS_KEY_SECRET, the authority of a TLS origin from SSL_CERT_FILE, as in every program of Go.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/aliyun/alibabacloud-oss-go-sdk-v2/oss"
	"github.com/aliyun/alibabacloud-oss-go-sdk-v2/oss/credentials"
)

const (
	inFlight = 128
	// What the guide allows: "The chunk size cannot be less than 2 MB".
	smallestChunk = 2 << 20
)

var (
	work      = flag.String("work", "", "get or many")
	landing   = flag.String("landing", "", "nowhere, file or files")
	endpoint  = flag.String("endpoint", "", "http[s]://HOST:PORT")
	bucket    = flag.String("bucket", "", "")
	key       = flag.String("key", "", "")
	bytes     = flag.Int64("bytes", 0, "size of the object")
	keys      = flag.String("keys", "", "file of keys, one a line")
	prefix    = flag.String("prefix", "", "what of a key is no part of its file's name")
	target    = flag.String("target", "", "a file, or a folder for many")
	parallel  = flag.Int("parallel", 0, "chunks or parts at a time; 0 leaves it to the SDK")
	perCore   = flag.Int("parallel-per-core", 0, "the guide's rule: so many chunks a core, each of SIZE / CHUNKS bytes")
	partBytes = flag.Int64("part-bytes", 0, "bytes of a chunk or part; 0 leaves it to the SDK")
	noCRC     = flag.Bool("no-crc64", false, "the downloader computes no CRC-64")
	check     = flag.String("check", "", "where the delivered bytes are kept")
)

func main() {
	flag.Parse()
	if err := talk(); err != nil {
		fmt.Println("failed", strings.ReplaceAll(err.Error(), "\n", " "))
		os.Exit(1)
	}
}

func talk() error {
	if *perCore > 0 {
		*parallel = *perCore * runtime.NumCPU()
		*partBytes = max(smallestChunk, (*bytes+int64(*parallel)-1)/int64(*parallel))
	}
	transfer, err := prepare(newClient())
	if err != nil {
		return err
	}
	lab := bufio.NewReader(os.Stdin)
	fmt.Println("ready")
	if word, _ := lab.ReadString('\n'); word != "go\n" {
		return nil
	}
	delivered, err := transfer(context.Background())
	if err != nil {
		return err
	}
	fmt.Println("done", delivered)
	_, err = io.Copy(io.Discard, lab) // The lab reads the clocks of this process before it lets go.
	return err
}

func newClient() *oss.Client {
	config := oss.LoadDefaultConfig().
		WithCredentialsProvider(credentials.NewEnvironmentVariableCredentialsProvider()).
		WithRegion("cn-hangzhou").
		WithEndpoint(*endpoint).
		WithUsePathStyle(true).
		WithDisableDownloadCRC64Check(*noCRC)
	// The SDK allows itself 100 connections and keeps 10 of them.
	if connections := max(*parallel, inFlight); connections > 100 {
		config = config.WithMaxConnections(connections)
	}
	return oss.NewClient(config)
}

type transfer func(context.Context) (int64, error)

func prepare(client *oss.Client) (transfer, error) {
	switch *work + " " + *landing {
	case "get nowhere":
		return func(ctx context.Context) (int64, error) { return read(ctx, client) }, nil
	case "get file":
		return func(ctx context.Context) (int64, error) { return download(ctx, client) }, nil
	case "many nowhere", "many files":
		return prepareMany(client)
	}
	return nil, fmt.Errorf("no way for --work %s --landing %s", *work, *landing)
}

// read is the guide's program: the SDK prefetches chunks, the copy to nowhere reads them in order.
func read(ctx context.Context, client *oss.Client) (int64, error) {
	object, err := client.OpenFile(ctx, *bucket, *key, func(o *oss.OpenOptions) {
		o.EnablePrefetch = true
		if *parallel > 0 {
			o.PrefetchNum, o.PrefetchThreshold = *parallel, 0
		}
		if *partBytes > 0 {
			o.ChunkSize = *partBytes
		}
	})
	if err != nil {
		return 0, err
	}
	defer object.Close()
	return land(object, *check)
}

func download(ctx context.Context, client *oss.Client) (int64, error) {
	downloader := client.NewDownloader(func(o *oss.DownloaderOptions) {
		if *parallel > 0 {
			o.ParallelNum = *parallel
		}
		if *partBytes > 0 {
			o.PartSize = *partBytes
		}
	})
	path := *target
	if *check != "" {
		path = *check
	}
	result, err := downloader.DownloadFile(ctx, &oss.GetObjectRequest{Bucket: bucket, Key: key}, path)
	if err != nil {
		return 0, err
	}
	return result.Written, nil
}

// prepareMany makes the folders of the files, so that what is timed is the same for every peer.
func prepareMany(client *oss.Client) (transfer, error) {
	list, err := os.ReadFile(*keys)
	if err != nil {
		return nil, err
	}
	names := strings.Fields(string(list))
	paths := make([]string, len(names))
	for at, name := range names {
		switch {
		case *check != "":
			paths[at] = filepath.Join(*check, name)
		case *landing == "files":
			paths[at] = filepath.Join(*target, strings.TrimPrefix(name, *prefix))
		default:
			continue
		}
		if err := os.MkdirAll(filepath.Dir(paths[at]), 0o755); err != nil {
			return nil, err
		}
	}
	return func(ctx context.Context) (int64, error) { return many(ctx, client, names, paths) }, nil
}

func many(ctx context.Context, client *oss.Client, names, paths []string) (int64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next, delivered atomic.Int64
	var workers sync.WaitGroup
	for range inFlight {
		workers.Go(func() {
			for at := next.Add(1) - 1; at < int64(len(names)) && ctx.Err() == nil; at = next.Add(1) - 1 {
				count, err := get(ctx, client, names[at], paths[at])
				delivered.Add(count)
				if err != nil {
					cancel(err)
				}
			}
		})
	}
	workers.Wait()
	return delivered.Load(), context.Cause(ctx)
}

func get(ctx context.Context, client *oss.Client, name, path string) (int64, error) {
	result, err := client.GetObject(ctx, &oss.GetObjectRequest{Bucket: bucket, Key: &name})
	if err != nil {
		return 0, err
	}
	defer result.Body.Close()
	return land(result.Body, path)
}

// land copies to a file, or without one to nowhere.
func land(body io.Reader, path string) (int64, error) {
	if path == "" {
		return io.Copy(io.Discard, body)
	}
	file, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	count, err := io.Copy(file, body)
	if closed := file.Close(); err == nil {
		err = closed
	}
	return count, err
}
