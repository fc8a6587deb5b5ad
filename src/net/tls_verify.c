/* Whether the peer is who it should be. OpenSSL judges; what it could not see for lack of memory is told
 * apart from what is wrong. */
#include "net/tls_stream.h"

#include <openssl/x509v3.h>

#include <arpa/inet.h>
#include <string.h>

#define HOST_FLAGS (X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT)

/* ---- Whom to verify ---- */

/* 4 or 16 bytes, or 0: the name is no address. */
static size_t address_of(const char *name, unsigned char address[16])
{
    if (inet_pton(AF_INET, name, address) == 1)
        return 4;
    return inet_pton(AF_INET6, name, address) == 1 ? 16 : 0;
}

/* A name, or an address: no SNI then (RFC 6066 3). */
bool tls_verify_name(struct net_tls *t)
{
    X509_VERIFY_PARAM *param = SSL_get0_param(t->ssl);
    unsigned char address[16];
    size_t len = address_of(t->name, address);

    if (len > 0)
        return X509_VERIFY_PARAM_set1_ip(param, address, len) == 1;
    /* RFC 6125: names stand in subjectAltName, and a wildcard is a whole label. */
    X509_VERIFY_PARAM_set_hostflags(param, HOST_FLAGS);
    return X509_VERIFY_PARAM_set1_host(param, t->name, 0) == 1 &&
           SSL_set_tlsext_host_name(t->ssl, t->name) == 1;
}

/* ---- What was found ---- */

static SSL *ssl_of(X509_STORE_CTX *store)
{
    return X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
}

/*
 * OpenSSL copies whom to verify from the SSL to the store's context, and goes on when there is no
 * memory for that (X509_VERIFY_PARAM_set1() in ssl_verify_cert_chain()): any name would do then.
 */
static bool verifies_name(const struct net_tls *t, X509_STORE_CTX *store)
{
    X509_VERIFY_PARAM *param = X509_STORE_CTX_get0_param(store);
    unsigned char address[16];
    char *text;

    if (!t->name || t->shared->settings.server)
        return true;
    if (address_of(t->name, address) == 0)
        return X509_VERIFY_PARAM_get0_host(param, 0) != NULL;
    text = X509_VERIFY_PARAM_get1_ip_asc(param);
    OPENSSL_free(text);
    return text != NULL;
}

static bool fits_name(const struct net_tls *t, X509 *cert)
{
    unsigned char address[16];
    size_t len = t->name ? address_of(t->name, address) : 0;

    if (len > 0)
        return X509_check_ip(cert, address, len, 0) == 1;
    return t->name && X509_check_host(cert, t->name, 0, HOST_FLAGS, NULL) == 1;
}

static bool signed_well(X509_STORE_CTX *store, X509 *cert)
{
    STACK_OF(X509) *chain = X509_STORE_CTX_get0_chain(store);
    int issuer = X509_STORE_CTX_get_error_depth(store) + 1;
    EVP_PKEY *key =
        X509_get0_pubkey(issuer < sk_X509_num(chain) ? sk_X509_value(chain, issuer) : cert);

    return key && X509_verify(cert, key) == 1;
}

/* Whether a certificate is refused for what is not so: OpenSSL had no memory to see it. */
static bool refused_wrongly(const struct net_tls *t, X509_STORE_CTX *store)
{
    X509 *cert = X509_STORE_CTX_get_current_cert(store);

    if (!cert)
        return false;
    switch (X509_STORE_CTX_get_error(store)) {
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        return fits_name(t, cert);
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
        return signed_well(store, cert);
    default:
        return tls_misread(cert);
    }
}

/* What OpenSSL has found, unless memory was short. It may refuse then, but never accept. */
static int judge(int ok, const struct net_tls *t, X509_STORE_CTX *store)
{
    if (ok ? verifies_name(t, store) : !refused_wrongly(t, store))
        return ok;
    X509_STORE_CTX_set_error(store, X509_V_ERR_OUT_OF_MEM);
    return 0;
}

int tls_on_verify(int ok, X509_STORE_CTX *store)
{
    SSL *ssl = ssl_of(store);
    struct net_tls *t = tls_of(ssl);

    ok = judge(ok, t, store);
    if (!ok && SSL_get_verify_mode(ssl) != SSL_VERIFY_NONE)
        tls_note_verify_locked(t, store);
    return ok;
}

/* Asks the application's own callback, which may accept what we would not. */
int tls_on_foreign_verify(int ok, X509_STORE_CTX *store)
{
    const struct net_tls *t = tls_of(ssl_of(store));

    if (ok && !judge(ok, t, store))
        return 0;
    return t->foreign_verify ? t->foreign_verify(ok, store) : ok;
}
