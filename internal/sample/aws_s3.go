package sample

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// maxKey limits the key of an object, in bytes.
const maxKey = 1024

// A bucket holds objects by key.
type bucket struct {
	Objects map[string]*s3Object
	Tags    map[string]string
	Policy  string // JSON, or "" for none
}

// An s3Object is one object in a bucket.
type s3Object struct {
	Body string
	Type string
}

// etag identifies the object's content.
func (o *s3Object) etag() string {
	sum := sha256.Sum256([]byte(o.Body))
	return hex.EncodeToString(sum[:16])
}

// describe returns the metadata of the object.
func (o *s3Object) describe(key string) jsonObject {
	return jsonObject{"Key": key, "Size": len(o.Body), "ETag": o.etag(), "ContentType": o.Type}
}

type bucketArgs struct {
	Bucket string `json:"bucket"`
}

type objectArgs struct {
	Bucket string `json:"bucket"`
	Key    string `json:"key"`
}

func (c *cloud) findBucket(name string) (*bucket, error) {
	return findThing(c.buckets, "NoSuchBucket", "bucket", name)
}

func (c *cloud) findObject(a objectArgs) (*bucket, *s3Object, error) {
	b, err := c.findBucket(a.Bucket)
	if err != nil {
		return nil, nil, err
	}
	o, err := findThing(b.Objects, "NoSuchKey", "object", a.Key)
	return b, o, err
}

// storeObject stores an object under a new or an existing key.
func (c *cloud) storeObject(b *bucket, key string, o *s3Object) error {
	if err := checkText("key", key, maxKey); err != nil {
		return fmt.Errorf("ValidationError: %w", err)
	}
	if _, ok := b.Objects[key]; !ok {
		if err := c.reserve(); err != nil {
			return err
		}
	}
	b.Objects[key] = o
	return nil
}

// s3Service has the tools for storage.
type s3Service struct{ *cloud }

func (c s3Service) listBuckets(struct{}) (any, error) {
	return jsonObject{"Buckets": sortedKeys(c.buckets)}, nil
}

func (c s3Service) createBucket(a bucketArgs) (any, error) {
	err := create(c.cloud, c.buckets, "BucketAlreadyExists", "bucket", a.Bucket, bucketName, &bucket{Objects: map[string]*s3Object{}})
	return jsonObject{"Location": "/" + a.Bucket}, err
}

func (c s3Service) deleteBucket(a bucketArgs) (any, error) {
	k, err := c.findBucket(a.Bucket)
	if err != nil {
		return nil, err
	}
	if len(k.Objects) > 0 {
		return nil, fmt.Errorf("BucketNotEmpty: bucket %q holds %d objects; delete them first", a.Bucket, len(k.Objects))
	}
	delete(c.buckets, a.Bucket)
	c.used--
	return jsonObject{"Deleted": a.Bucket}, nil
}

func (c s3Service) listObjects(a struct {
	Bucket  string `json:"bucket"`
	Prefix  string `json:"prefix,omitempty"`
	After   string `json:"after,omitempty"`
	MaxKeys int    `json:"max_keys,omitempty"`
},
) (any, error) {
	most, err := checkLimit("max_keys", a.MaxKeys, 100, 1000)
	if err != nil {
		return nil, err
	}
	k, err := c.findBucket(a.Bucket)
	if err != nil {
		return nil, err
	}
	found, more := []jsonObject{}, false
	for _, key := range sortedKeys(k.Objects) {
		if !strings.HasPrefix(key, a.Prefix) || key <= a.After {
			continue
		}
		if len(found) == most {
			more = true
			break
		}
		found = append(found, k.Objects[key].describe(key))
	}
	return jsonObject{"Contents": found, "IsTruncated": more}, nil
}

func (c s3Service) getObject(a objectArgs) (any, error) {
	_, o, err := c.findObject(a)
	if err != nil {
		return nil, err
	}
	r := o.describe(a.Key)
	r["Body"] = o.Body
	return r, nil
}

func (c s3Service) headObject(a objectArgs) (any, error) {
	_, o, err := c.findObject(a)
	if err != nil {
		return nil, err
	}
	return o.describe(a.Key), nil
}

func (c s3Service) putObject(a struct {
	Bucket      string `json:"bucket"`
	Key         string `json:"key"`
	Body        string `json:"body"`
	ContentType string `json:"content_type,omitempty"`
},
) (any, error) {
	k, err := c.findBucket(a.Bucket)
	if err != nil {
		return nil, err
	}
	if err := checkBody("the object", a.Body); err != nil {
		return nil, err
	}
	o := &s3Object{Body: a.Body, Type: "text/plain"}
	if a.ContentType != "" {
		if err := checkText("content_type", a.ContentType, 256); err != nil {
			return nil, err
		}
		o.Type = a.ContentType
	}
	if err := c.storeObject(k, a.Key, o); err != nil {
		return nil, err
	}
	return jsonObject{"ETag": o.etag()}, nil
}

func (c s3Service) copyObject(a struct {
	Bucket   string `json:"bucket"`
	Key      string `json:"key"`
	ToBucket string `json:"to_bucket"`
	ToKey    string `json:"to_key"`
},
) (any, error) {
	_, o, err := c.findObject(objectArgs{a.Bucket, a.Key})
	if err != nil {
		return nil, err
	}
	to, err := c.findBucket(a.ToBucket)
	if err != nil {
		return nil, err
	}
	dup := *o
	if err := c.storeObject(to, a.ToKey, &dup); err != nil {
		return nil, err
	}
	return jsonObject{"ETag": dup.etag()}, nil
}

func (c s3Service) deleteObject(a objectArgs) (any, error) {
	k, _, err := c.findObject(a)
	if err != nil {
		return nil, err
	}
	delete(k.Objects, a.Key)
	c.used--
	return jsonObject{"Deleted": a.Key}, nil
}

func (c s3Service) getBucketTagging(a bucketArgs) (any, error) {
	k, err := c.findBucket(a.Bucket)
	if err != nil {
		return nil, err
	}
	return jsonObject{"Tags": nonNilMap(k.Tags)}, nil
}

func (c s3Service) putBucketTagging(a struct {
	Bucket string            `json:"bucket"`
	Tags   map[string]string `json:"tags"`
},
) (any, error) {
	k, err := c.findBucket(a.Bucket)
	if err != nil {
		return nil, err
	}
	if err := checkTags(a.Tags); err != nil {
		return nil, err
	}
	k.Tags = a.Tags
	return jsonObject{"Tags": nonNilMap(k.Tags)}, nil
}

// nonNilMap returns tags, or an empty map if tags is nil, so that the result is never null.
func nonNilMap(tags map[string]string) map[string]string {
	if tags == nil {
		return map[string]string{}
	}
	return tags
}
