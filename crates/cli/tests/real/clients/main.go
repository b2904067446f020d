// The OSS Go SDK v2 as a client of `flatout serve`: one command a run, so that a test can say what must come of it.
//
//	oss-go [flags] upload|download|read|append|stat|list|presign|delete BUCKET [KEY [FILE]]
//
// Keys come from OSS_ACCESS_KEY_ID and OSS_ACCESS_KEY_SECRET. What goes wrong is said on standard error, exit code 1.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/aliyun/alibabacloud-oss-go-sdk-v2/oss"
	"github.com/aliyun/alibabacloud-oss-go-sdk-v2/oss/credentials"
	"github.com/aliyun/alibabacloud-oss-go-sdk-v2/oss/signer"
)

var (
	endpoint  = flag.String("endpoint", "", "http://HOST:PORT")
	via       = flag.String("via", "", "HOST:PORT to connect to, whatever the endpoint is called")
	virtual   = flag.Bool("virtual", false, "the bucket stands in the host name")
	version   = flag.String("signature", "v4", "v4 or v1")
	skew      = flag.Duration("skew", 0, "how far this machine's clock is ahead")
	attempts  = flag.Int("attempts", 3, "tries of each request")
	partBytes = flag.Int64("part-bytes", 256<<10, "bytes in a part")
	parallel  = flag.Int("parallel", 4, "parts at a time")
)

func main() {
	flag.Parse()
	if err := run(flag.Args()); err != nil {
		var refused *oss.ServiceError
		if errors.As(err, &refused) {
			fmt.Fprintln(os.Stderr, refused.StatusCode, refused.Code, refused.EC, refused.RequestID)
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	command, bucket, key, file := words(args)
	ctx, client := context.Background(), newClient()
	switch command {
	case "upload":
		return upload(ctx, client, bucket, key, file)
	case "download":
		downloader := client.NewDownloader(func(o *oss.DownloaderOptions) {
			o.PartSize, o.ParallelNum = *partBytes, *parallel
		})
		_, err := downloader.DownloadFile(ctx, &oss.GetObjectRequest{Bucket: &bucket, Key: &key}, file)
		return err
	case "read":
		return read(ctx, client, bucket, key, file)
	case "append":
		return appendFile(ctx, client, bucket, key, file)
	case "stat":
		return stat(ctx, client, bucket, key)
	case "list":
		return list(ctx, client, bucket)
	case "presign":
		signed, err := client.Presign(ctx, &oss.GetObjectRequest{Bucket: &bucket, Key: &key})
		if err == nil {
			fmt.Println(signed.URL)
		}
		return err
	case "delete":
		objects := []oss.DeleteObject{{Key: &key}}
		_, err := client.DeleteMultipleObjects(ctx, &oss.DeleteMultipleObjectsRequest{Bucket: &bucket, Objects: objects})
		return err
	}
	return fmt.Errorf("no such command: %q", command)
}

func words(args []string) (command, bucket, key, file string) {
	args = append(args, "", "", "", "")
	return args[0], args[1], args[2], args[3]
}

func newClient() *oss.Client {
	signature, sign := oss.SignatureVersionV4, signer.Signer(&signer.SignerV4{})
	if *version == "v1" {
		signature, sign = oss.SignatureVersionV1, &signer.SignerV1{}
	}
	config := oss.LoadDefaultConfig().
		WithCredentialsProvider(credentials.NewEnvironmentVariableCredentialsProvider()).
		WithRegion("cn-hangzhou").
		WithEndpoint(*endpoint).
		WithSignatureVersion(signature).
		WithRetryMaxAttempts(*attempts).
		WithUsePathStyle(!*virtual)
	if *via != "" {
		dialer := net.Dialer{}
		config = config.WithHttpClient(&http.Client{Transport: &http.Transport{
			DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return dialer.DialContext(ctx, network, *via)
			},
		}})
	}
	return oss.NewClient(config, func(o *oss.Options) {
		if *skew != 0 {
			o.Signer = &wrongClock{sign}
		}
	})
}

// wrongClock signs as a machine would whose clock is ahead; what the SDK learns of the difference still counts.
type wrongClock struct{ signer.Signer }

func (w *wrongClock) Sign(ctx context.Context, signing *signer.SigningContext) error {
	signing.Time = time.Now().Add(*skew + signing.ClockOffset)
	return w.Signer.Sign(ctx, signing)
}

func upload(ctx context.Context, client *oss.Client, bucket, key, file string) error {
	uploader := client.NewUploader(func(o *oss.UploaderOptions) {
		o.PartSize, o.ParallelNum = *partBytes, *parallel
	})
	request := &oss.PutObjectRequest{Bucket: &bucket, Key: &key, Metadata: map[string]string{"colour": "blue"}}
	_, err := uploader.UploadFile(ctx, request, file)
	return err
}

// read copies an object by OpenFile: from its start on the SDK's own prefetch, chunks in flight beside each other.
func read(ctx context.Context, client *oss.Client, bucket, key, file string) error {
	object, err := client.OpenFile(ctx, bucket, key, func(o *oss.OpenOptions) {
		o.EnablePrefetch, o.ChunkSize, o.PrefetchNum, o.PrefetchThreshold = true, *partBytes, *parallel, 0
	})
	if err != nil {
		return err
	}
	defer object.Close()
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	if _, err = io.Copy(out, object); err != nil {
		return err
	}
	return out.Close()
}

func appendFile(ctx context.Context, client *oss.Client, bucket, key, file string) error {
	object, err := client.AppendFile(ctx, bucket, key)
	if err != nil {
		return err
	}
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	if _, err = io.Copy(object, in); err != nil {
		return err
	}
	return object.Close()
}

func stat(ctx context.Context, client *oss.Client, bucket, key string) error {
	head, err := client.HeadObject(ctx, &oss.HeadObjectRequest{Bucket: &bucket, Key: &key})
	if err != nil {
		return err
	}
	meta, err := client.GetObjectMeta(ctx, &oss.GetObjectMetaRequest{Bucket: &bucket, Key: &key})
	if err != nil {
		return err
	}
	fmt.Println("bytes", head.ContentLength, meta.ContentLength)
	fmt.Println("crc64", oss.ToString(head.HashCRC64), oss.ToString(meta.HashCRC64))
	fmt.Println("type", oss.ToString(head.ObjectType), oss.ToString(head.StorageClass))
	fmt.Println("colour", head.Metadata["colour"])
	return nil
}

func list(ctx context.Context, client *oss.Client, bucket string) error {
	pages := client.NewListObjectsV2Paginator(&oss.ListObjectsV2Request{Bucket: &bucket, MaxKeys: 2})
	for pages.HasNext() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return err
		}
		for _, object := range page.Contents {
			fmt.Println(object.Size, oss.ToString(object.Key))
		}
	}
	return nil
}
