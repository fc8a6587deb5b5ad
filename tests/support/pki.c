#include "pki.h"

#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "pki: %s\n", what);
    abort();
}

static void extension(X509 *cert, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX ctx;
    X509_EXTENSION *e;

    X509V3_set_ctx_nodb(&ctx);
    X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);
    e = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    must(e && X509_add_ext(cert, e, -1) == 1, value);
    X509_EXTENSION_free(e);
}

static char *text_of(BIO *out)
{
    char *data;
    long len = BIO_get_mem_data(out, &data);
    char *copy = malloc((size_t)len + 1);

    must(copy != NULL, "no memory");
    memcpy(copy, data, (size_t)len);
    copy[len] = 0;
    BIO_free(out);
    return copy;
}

static void sign(struct pki *p, const struct pki_spec *spec)
{
    X509 *c = p->x509;
    X509 *issuer = spec->issuer ? spec->issuer->x509 : c;
    static long serial = 1000;

    must(X509_set_version(c, X509_VERSION_3) == 1, "version");
    ASN1_INTEGER_set(X509_get_serialNumber(c), ++serial);
    X509_gmtime_adj(X509_getm_notBefore(c), spec->begin ? spec->begin : -3600);
    X509_gmtime_adj(X509_getm_notAfter(c), spec->end ? spec->end : 86400);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(c), "CN", MBSTRING_UTF8,
                               (const unsigned char *)spec->name, -1, -1, 0);
    X509_set_issuer_name(c, X509_get_subject_name(issuer));
    X509_set_pubkey(c, p->pkey);
    extension(c, issuer, NID_basic_constraints, spec->ca ? "critical,CA:TRUE" : "CA:FALSE");
    extension(c, issuer, NID_subject_key_identifier, "hash");
    extension(c, issuer, NID_authority_key_identifier, "keyid");
    if (spec->ca)
        extension(c, issuer, NID_key_usage, "critical,keyCertSign,cRLSign");
    if (spec->alt)
        extension(c, issuer, NID_subject_alt_name, spec->alt);
    must(X509_sign(c, spec->issuer ? spec->issuer->pkey : p->pkey, EVP_sha256()) > 0, "sign");
}

void pki_make(struct pki *p, const struct pki_spec *spec)
{
    BIO *cert = BIO_new(BIO_s_mem()), *key = BIO_new(BIO_s_mem());
    const char *pw = spec->password;

    p->pkey = EVP_EC_gen("P-256");
    p->x509 = X509_new();
    must(cert && key && p->pkey && p->x509, "no memory");
    sign(p, spec);
    must(PEM_write_bio_X509(cert, p->x509) == 1, "certificate");
    must(PEM_write_bio_PKCS8PrivateKey(key, p->pkey, pw ? EVP_aes_256_cbc() : NULL, pw,
                                       pw ? (int)strlen(pw) : 0, NULL, NULL) == 1,
         "key");
    p->cert = text_of(cert);
    p->key = text_of(key);
}

void pki_free(struct pki *p)
{
    X509_free(p->x509);
    EVP_PKEY_free(p->pkey);
    free(p->cert);
    free(p->key);
    memset(p, 0, sizeof *p);
}

char *pki_join(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    char *both = malloc(n + m + 1);

    must(both != NULL, "no memory");
    memcpy(both, a, n);
    memcpy(both + n, b, m + 1);
    return both;
}

void pki_write(const char *path, const char *text)
{
    FILE *f = fopen(path, "we");

    must(f && fputs(text, f) >= 0 && fclose(f) == 0, path);
}
