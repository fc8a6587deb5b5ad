/*
 * cluster_replay: what docs/cluster.md says of NATS JetStream, done.
 *
 *     cluster_replay URL keep             makes a stream of all rooms
 *     cluster_replay URL read SUBJECT N   prints the data messages from number N of the stream on:
 *                                         ROOM BYTES, a line each
 */
#include <nats/nats.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KIND_AT = 5, NAME_AT = 52, HEAD = 56, DATA = 1 };

static natsStatus keep(jsCtx *js)
{
    const char *subjects[] = {"tws.r.>"};
    jsStreamConfig stream;

    jsStreamConfig_Init(&stream);
    stream.Name = "ROOMS";
    stream.Subjects = subjects;
    stream.SubjectsLen = 1;
    return js_AddStream(NULL, js, &stream, NULL, NULL);
}

static natsStatus read_from(jsCtx *js, const char *subject, unsigned long first)
{
    natsSubscription *sub = NULL;
    jsSubOptions opt;
    natsStatus s;
    natsMsg *m;

    jsSubOptions_Init(&opt);
    opt.Config.DeliverPolicy = js_DeliverByStartSequence;
    opt.Config.OptStartSeq = first;
    opt.Ordered = true;
    s = js_SubscribeSync(&sub, js, subject, NULL, &opt, NULL);
    while (s == NATS_OK && natsSubscription_NextMsg(&m, sub, 1000) == NATS_OK) {
        const unsigned char *data = (const unsigned char *)natsMsg_GetData(m);
        int len = natsMsg_GetDataLength(m);
        int name = data[NAME_AT] << 8 | data[NAME_AT + 1];

        if (data[KIND_AT] == DATA)
            printf("%.*s %d\n", name, (const char *)data + HEAD, len - HEAD - name);
        natsMsg_Destroy(m);
    }
    natsSubscription_Destroy(sub);
    return s;
}

int main(int argc, char **argv)
{
    natsConnection *nc = NULL;
    jsCtx *js = NULL;
    natsStatus s;

    if (argc != 3 && argc != 5)
        return 2;
    s = natsConnection_ConnectTo(&nc, argv[1]);
    if (s == NATS_OK)
        s = natsConnection_JetStream(&js, nc, NULL);
    if (s == NATS_OK)
        s = argc == 3 ? keep(js) : read_from(js, argv[3], strtoul(argv[4], NULL, 10));
    if (s != NATS_OK)
        fprintf(stderr, "cluster_replay: %s\n", natsStatus_GetText(s));
    jsCtx_Destroy(js);
    natsConnection_Destroy(nc);
    nats_Close();
    return s == NATS_OK ? 0 : 1;
}
