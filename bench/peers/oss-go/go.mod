module flatout.bench/oss-go

go 1.25

require github.com/aliyun/alibabacloud-oss-go-sdk-v2 v1.6.1

require golang.org/x/time v0.4.0 // indirect
