/* What went wrong in TLS, in words that say what to do. */
#include "net/tls_stream.h"

#include "base/alloc.h"

#include <openssl/err.h>
#include <openssl/x509v3.h>

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- Reasons ---- */

struct reason {
    int code;
    bool certificate; /* it is about somebody's certificate */
    const char *text;
};

static const struct reason reasons[] = {
    {SSL_R_HTTP_REQUEST, false, "the peer sent a plain HTTP request to a TLS port"},
    {SSL_R_HTTPS_PROXY_REQUEST, false, "the peer sent a plain proxy request to a TLS port"},
    {SSL_R_WRONG_VERSION_NUMBER, false,
     "what the peer sent is not TLS: does this port speak it, without anything before it?"},
    {SSL_R_UNSUPPORTED_PROTOCOL, false,
     "the peer speaks no version of TLS that is allowed here (min_version)"},
    {SSL_R_VERSION_TOO_LOW, false,
     "the peer speaks no version of TLS that is allowed here (min_version)"},
    {SSL_R_NO_SHARED_CIPHER, false, "there is no cipher suite that both sides allow"},
    {SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM, false,
     "there is no signature algorithm that both sides allow and that fits the key"},
    {SSL_R_NO_APPLICATION_PROTOCOL, false, "the peer offered other protocols than HTTP/1.1 (ALPN)"},
    {SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE, true,
     "the client showed no certificate, and one is required"},
    {SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE, false,
     "the peer refused the handshake: no cipher suite, version or key that both allow"},
    {SSL_R_TLSV1_ALERT_PROTOCOL_VERSION, false,
     "the peer refused our versions of TLS (alert protocol_version)"},
    {SSL_R_TLSV1_ALERT_UNKNOWN_CA, true,
     "the peer does not trust the authority of our certificate (alert unknown_ca)"},
    {SSL_R_SSLV3_ALERT_BAD_CERTIFICATE, true, "the peer refused our certificate (bad_certificate)"},
    {SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED, true, "the peer says that our certificate has expired"},
    {SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED, true, "the peer says that our certificate was revoked"},
    {SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN, true,
     "the peer refused our certificate (certificate_unknown)"},
    {SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE, true,
     "the peer refused our certificate (unsupported_certificate)"},
    {SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED, true,
     "the server requires a certificate from us, and we showed none"},
    {SSL_R_TLSV1_ALERT_ACCESS_DENIED, true, "the peer denies access to our certificate"},
    {SSL_R_TLSV1_ALERT_NO_APPLICATION_PROTOCOL, false,
     "the peer does not speak HTTP/1.1 here (ALPN)"},
    {SSL_R_TLSV1_ALERT_INTERNAL_ERROR, false,
     "the peer had an internal error, or is full (alert internal_error)"},
    {SSL_R_TLSV1_ALERT_USER_CANCELLED, false, "the peer cancelled the handshake"},
    {SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC, false,
     "a record was damaged or forged on the way (bad record MAC)"},
};

static const struct reason *reason_of(unsigned long code)
{
    if (ERR_GET_LIB(code) != ERR_LIB_SSL)
        return NULL;
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (reasons[i].code == ERR_GET_REASON(code))
            return &reasons[i];
    return NULL;
}

/* ---- Notes ---- */

static struct net_tls_error *note_new_locked(struct net_tls *t)
{
    if (t->error)
        return NULL; /* the first one tells most */
    t->error = base_calloc(t->allocator, sizeof *t->error);
    return t->error;
}

void tls_note_locked(struct net_tls *t, unsigned long code, const char *text)
{
    struct net_tls_error *e = note_new_locked(t);

    if (!e)
        return;
    e->code = code;
    if (text)
        snprintf(e->text, sizeof e->text, "%s", text);
    else
        snprintf(e->text, sizeof e->text, "%s",
                 ERR_reason_error_string(code) ? ERR_reason_error_string(code) : "unknown");
}

/* An application's own context does not tell us why, one word aside. */
static void note_foreign_verify_locked(struct net_tls *t)
{
    struct net_tls_error *e;
    long result = SSL_get_verify_result(t->ssl);

    if (result == X509_V_OK || !(e = note_new_locked(t)))
        return;
    e->verify = result;
    snprintf(e->text, sizeof e->text, "the certificate is not accepted: %s",
             X509_verify_cert_error_string(result));
}

struct tls_errors tls_errors_take(void)
{
    struct tls_errors all = {0, 0, 0};
    unsigned long code;

    while ((code = ERR_get_error()) != 0) {
        if (!all.first)
            all.first = code;
        all.last = code;
        if (!all.memory && ERR_GET_REASON(code) == ERR_R_MALLOC_FAILURE)
            all.memory = code;
    }
    return all;
}

/* In place of what was noted: a certificate that could not be looked at is none that is wrong. */
static int no_memory_locked(struct net_tls *t, unsigned long code)
{
    if (t->error)
        memset(t->error, 0, sizeof *t->error);
    else if (!note_new_locked(t))
        return -ENOMEM;
    t->error->code = code;
    snprintf(t->error->text, sizeof t->error->text, "out of memory");
    return -ENOMEM;
}

int tls_failure_locked(struct net_tls *t, int ssl_error)
{
    struct tls_errors errors = tls_errors_take();
    unsigned long code = errors.first;
    const struct reason *reason = reason_of(code);
    int r = -EPROTO;

    if (ERR_GET_LIB(code) == ERR_LIB_SSL && ERR_GET_REASON(code) == SSL_R_CERTIFICATE_VERIFY_FAILED)
        note_foreign_verify_locked(t);
    if (errors.memory || (t->error && t->error->verify == X509_V_ERR_OUT_OF_MEM))
        return no_memory_locked(t, errors.memory);
    if (t->error && t->error->verify) {
        if (!t->error->code)
            t->error->code = code;
        return -EKEYREJECTED;
    }
    if (code == 0 && t->send_error)
        return t->send_error;
    if (reason && reason->certificate)
        r = -EKEYREJECTED;
    if (code)
        tls_note_locked(t, code, reason ? reason->text : NULL);
    else if (ssl_error == SSL_ERROR_WANT_READ)
        tls_note_locked(t, 0, "the peer stopped in the middle of a message of TLS");
    else
        tls_note_locked(t, 0, "OpenSSL gave no reason");
    return r;
}

/* ---- Certificates ---- */

struct line {
    char *buf;
    size_t size, len;
};

static void put(struct line *l, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(struct line *l, const char *format, ...)
{
    va_list args;
    int n;

    if (l->len >= l->size)
        return;
    va_start(args, format);
    n = vsnprintf(l->buf + l->len, l->size - l->len, format, args);
    va_end(args);
    l->len += n > 0 ? (size_t)n : 0;
}

/* What a person calls the holder: its common name, or its organisation. */
static void put_name(struct line *l, const X509_NAME *name)
{
    char text[64] = "";

    if (name && X509_NAME_get_text_by_NID((X509_NAME *)(uintptr_t)name, NID_commonName, text,
                                          sizeof text) < 0)
        X509_NAME_get_text_by_NID((X509_NAME *)(uintptr_t)name, NID_organizationName, text,
                                  sizeof text);
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 127)
            *p = '?';
    put(l, "\"%s\"", text);
}

static void put_day(struct line *l, const ASN1_TIME *time)
{
    struct tm tm;

    if (ASN1_TIME_to_tm(time, &tm) == 1)
        put(l, "%04d-%02d-%02d %02d:%02d UTC", tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday,
            tm.tm_hour, tm.tm_min);
}

static void put_address(struct line *l, const ASN1_OCTET_STRING *ip)
{
    const unsigned char *b = ASN1_STRING_get0_data(ip);

    if (ASN1_STRING_length(ip) == 4)
        put(l, "%u.%u.%u.%u", b[0], b[1], b[2], b[3]);
    for (int i = 0; ASN1_STRING_length(ip) == 16 && i < 16; i += 2)
        put(l, "%s%x", i ? ":" : "", b[i] << 8 | b[i + 1]);
}

/* The names or addresses that a certificate is for, as many as fit. */
static void put_names(struct line *l, X509 *cert)
{
    GENERAL_NAMES *names = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
    const char *before = "";

    if (sk_GENERAL_NAME_num(names) <= 0)
        put(l, "no name at all (it has no subjectAltName)");
    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *n = sk_GENERAL_NAME_value(names, i);

        if (l->size - l->len < 60) {
            put(l, "...");
            break;
        }
        if (n->type == GEN_DNS)
            put(l, "%s%.*s", before, ASN1_STRING_length(n->d.dNSName),
                (const char *)ASN1_STRING_get0_data(n->d.dNSName));
        else if (n->type == GEN_IPADD)
            put(l, "%s", before), put_address(l, n->d.iPAddress);
        else
            continue;
        before = ", ";
    }
    GENERAL_NAMES_free(names);
}

static void put_issuer_missing(struct line *l, X509 *cert, int depth)
{
    put(l, "the certificate of ");
    put_name(l, X509_get_subject_name(cert));
    put(l, " was issued by ");
    put_name(l, X509_get_issuer_name(cert));
    if (depth == 0)
        put(l, ", which the peer did not send and which is not trusted here: "
               "the peer's chain is incomplete, or this authority is missing (ca_file)");
    else
        put(l, ", an authority that is not trusted here (ca_file)");
}

static void put_verify(struct line *l, const struct net_tls *t, X509 *cert, int code, int depth)
{
    switch (code) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
        put(l, "the certificate of ");
        put_name(l, X509_get_subject_name(cert));
        put(l, " expired on ");
        put_day(l, X509_get0_notAfter(cert));
        return;
    case X509_V_ERR_CERT_NOT_YET_VALID:
        put(l, "the certificate of ");
        put_name(l, X509_get_subject_name(cert));
        put(l, " is not valid before ");
        put_day(l, X509_get0_notBefore(cert));
        put(l, ": is this machine's clock right?");
        return;
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
        put(l, "the certificate of ");
        put_name(l, X509_get_subject_name(cert));
        put(l, " is self-signed and not trusted here (ca_file, if it shall be)");
        return;
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
        put(l, "the chain ends at the authority ");
        put_name(l, X509_get_subject_name(cert));
        put(l, ", which is not trusted here (ca_file, if it shall be)");
        return;
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
        put_issuer_missing(l, cert, depth);
        return;
    case X509_V_ERR_HOSTNAME_MISMATCH:
        put(l, "the certificate is not for the name \"%s\", but for ", t->name ? t->name : "");
        put_names(l, cert);
        return;
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        put(l, "the certificate is not for the address %s, but for ", t->name ? t->name : "");
        put_names(l, cert);
        return;
    default:
        put(l, "the certificate of ");
        put_name(l, X509_get_subject_name(cert));
        put(l, " is not accepted: %s", X509_verify_cert_error_string(code));
    }
}

void tls_note_verify_locked(struct net_tls *t, X509_STORE_CTX *store)
{
    struct net_tls_error *e = note_new_locked(t);
    int code = X509_STORE_CTX_get_error(store);
    int depth = X509_STORE_CTX_get_error_depth(store);
    X509 *cert = X509_STORE_CTX_get_current_cert(store);
    struct line l;

    if (!e)
        return;
    e->verify = code;
    l = (struct line){.buf = e->text, .size = sizeof e->text};
    if (cert)
        put_verify(&l, t, cert, code, depth);
    else
        put(&l, "the certificate is not accepted: %s", X509_verify_cert_error_string(code));
}

/* ---- For others ---- */

void net_tls_last_error(struct net_stream *st, struct net_tls_error *err)
{
    struct net_tls *t = st->tls;

    memset(err, 0, sizeof *err);
    if (!t)
        return;
    pthread_mutex_lock(&t->mu);
    if (t->error)
        *err = *t->error;
    pthread_mutex_unlock(&t->mu);
}
