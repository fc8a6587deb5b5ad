/* Certificates, keys and authorities from PEM, with reasons a person can act on. */
#include "net/tls_context.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

/* ---- Faults ---- */

tws_err tls_fault_set(struct tls_fault *f, tws_err code, bool queue, const char *format, ...)
{
    struct tls_errors errors = tls_errors_take();
    va_list args;
    int n;

    f->tls = queue ? errors.last : 0;
    /* Whatever else is said may follow from it; nothing is said when there was no memory for that. */
    if (errors.memory || (queue && !errors.last && code == TWS_ERR_CERTIFICATE)) {
        code = TWS_ERR_MEMORY;
        f->tls = errors.memory;
    }
    f->code = code;
    va_start(args, format);
    n = vsnprintf(f->text, sizeof f->text, format, args);
    va_end(args);
    if (f->tls && n > 0 && (size_t)n < sizeof f->text) {
        const char *reason = ERR_reason_error_string(f->tls);

        snprintf(f->text + n, sizeof f->text - (size_t)n, ": %s",
                 reason ? reason : "refused by OpenSSL");
    }
    return code;
}

/* ---- Certificates that were misread ---- */

/* A certificate of its own issuer that does not seem to be signed by itself is rare, so it does not count. */
static bool readable(X509 *cert)
{
    EVP_PKEY *key = X509_get0_pubkey(cert);

    return key && EVP_PKEY_get_security_bits(key) > 0 && X509_check_purpose(cert, -1, 0) == 1 &&
           (X509_get_extension_flags(cert) & (EXFLAG_SI | EXFLAG_SS)) != EXFLAG_SI &&
           X509_get_signature_info(cert, NULL, NULL, NULL, NULL) == 1;
}

bool tls_misread(X509 *cert)
{
    X509 *again;
    bool misread;

    if (readable(cert))
        return false;
    again = X509_dup(cert);
    misread = !again || readable(again);
    X509_free(again);
    return misread;
}

/* So it is looked at now and not in the first handshake, and a second time, in a fresh copy, before
 * anything is held to be wrong with it. Takes the reference. NULL: none, or no memory. */
static X509 *settle(X509 *cert)
{
    X509 *again;

    if (!cert || readable(cert))
        return cert;
    again = X509_dup(cert);
    X509_free(cert);
    if (again && readable(again))
        ERR_clear_error();
    return again;
}

/* ---- Where PEM comes from ---- */

struct source {
    const char *file;
    const void *pem;
    size_t len;
    const char *name; /* for texts */
};

static BIO *source_open(const struct source *s, struct tls_fault *f)
{
    BIO *in;

    ERR_clear_error();
    errno = 0;
    if (s->file)
        in = BIO_new_file(s->file, "r");
    else
        in = s->len <= INT32_MAX ? BIO_new_mem_buf(s->pem, (int)s->len) : NULL;
    if (!in && s->file && errno) {
        char text[64];
        int saved = errno;

        tls_fault_set(f, saved == ENOMEM ? TWS_ERR_MEMORY : TWS_ERR_CERTIFICATE, false, "%s: %s",
                      s->file, strerror_r(saved, text, sizeof text));
        f->sys_errno = saved;
    } else if (!in) {
        tls_fault_set(f, TWS_ERR_MEMORY, false, "%s: out of memory", s->name);
    }
    return in;
}

static struct source certificate_source(const tws_tls_certificate *c)
{
    return (struct source){.file = c->cert_pem ? NULL : c->cert_file,
                           .pem = c->cert_pem,
                           .len = c->cert_pem_len,
                           .name = c->cert_pem    ? "the certificate in memory"
                                   : c->cert_file ? c->cert_file
                                                  : "the certificate"};
}

static struct source key_source(const tws_tls_certificate *c)
{
    if (!c->key_pem && !c->key_file)
        return certificate_source(c);
    return (struct source){.file = c->key_pem ? NULL : c->key_file,
                           .pem = c->key_pem,
                           .len = c->key_pem_len,
                           .name = c->key_pem ? "the key in memory" : c->key_file};
}

/* Nothing more of that kind was in the input, and nothing was broken. OpenSSL says so by an error. */
static bool at_end(void)
{
    unsigned long e = ERR_peek_last_error();
    bool end = ERR_GET_LIB(e) == ERR_LIB_PEM && ERR_GET_REASON(e) == PEM_R_NO_START_LINE &&
               ERR_GET_REASON(ERR_peek_error()) != ERR_R_MALLOC_FAILURE;

    if (end)
        ERR_clear_error();
    return end;
}

/* ---- Chain and key ---- */

struct password {
    const char *text;
    bool asked;
};

/* Without this OpenSSL would ask on the terminal. */
static int give_password(char *buf, int size, int writing, void *arg)
{
    struct password *p = arg;
    size_t len = p->text ? strlen(p->text) : 0;

    (void)writing;
    p->asked = true;
    if (!p->text || len > (size_t)size)
        return -1;
    memcpy(buf, p->text, len);
    return (int)len;
}

static tws_err read_chain(SSL_CTX *ctx, BIO *in, const char *name, struct tls_fault *f)
{
    struct password none = {.text = NULL};
    X509 *cert = settle(PEM_read_bio_X509_AUX(in, NULL, give_password, &none));
    int ok;

    if (!cert && at_end())
        return tls_fault_set(f, TWS_ERR_CERTIFICATE, false,
                             "%s holds no certificate in PEM form (-----BEGIN CERTIFICATE-----)",
                             name);
    if (!cert)
        return tls_fault_set(f, TWS_ERR_CERTIFICATE, true, "%s: the certificate is damaged", name);
    ok = SSL_CTX_use_certificate(ctx, cert);
    X509_free(cert);
    if (ok != 1)
        return tls_fault_set(f, TWS_ERR_CERTIFICATE, true, "%s: the certificate cannot be used",
                             name);
    while ((cert = settle(PEM_read_bio_X509(in, NULL, give_password, &none)))) {
        if (SSL_CTX_add0_chain_cert(ctx, cert) != 1) {
            X509_free(cert);
            return tls_fault_set(f, TWS_ERR_CERTIFICATE, true,
                                 "%s: a certificate of the chain cannot be used", name);
        }
    }
    if (!at_end())
        return tls_fault_set(f, TWS_ERR_CERTIFICATE, true,
                             "%s: a certificate of the chain is damaged", name);
    return TWS_OK;
}

static tws_err key_unreadable(const char *name, const struct password *p, struct tls_fault *f)
{
    if (p->asked && !p->text)
        return tls_fault_set(f, TWS_ERR_CERTIFICATE, false,
                             "%s: the key is encrypted and no password was given", name);
    if (p->asked)
        return tls_fault_set(f, TWS_ERR_CERTIFICATE, false,
                             "%s: the key cannot be decrypted: wrong password?", name);
    if (at_end() || ERR_GET_REASON(ERR_peek_last_error()) == ERR_R_UNSUPPORTED)
        return tls_fault_set(f, TWS_ERR_CERTIFICATE, false,
                             "%s holds no private key in PEM form (-----BEGIN PRIVATE KEY-----)",
                             name);
    return tls_fault_set(f, TWS_ERR_CERTIFICATE, true, "%s: the key is damaged", name);
}

static tws_err read_key(SSL_CTX *ctx, BIO *in, const char *name, const char *cert_name,
                        const char *password, struct tls_fault *f)
{
    struct password p = {.text = password};
    EVP_PKEY *key = PEM_read_bio_PrivateKey(in, NULL, give_password, &p);
    int ok;

    if (!key)
        return key_unreadable(name, &p, f);
    ok = SSL_CTX_use_PrivateKey(ctx, key) == 1 && SSL_CTX_check_private_key(ctx) == 1;
    EVP_PKEY_free(key);
    if (!ok)
        return tls_fault_set(f, TWS_ERR_CERTIFICATE, true,
                             "the key in %s does not belong to the certificate in %s", name,
                             cert_name);
    return TWS_OK;
}

tws_err tls_load_certificate(SSL_CTX *ctx, const tws_tls_certificate *c, struct tls_fault *f)
{
    struct source cert = certificate_source(c);
    struct source key = key_source(c);
    tws_err err;
    BIO *in;

    if (!cert.file && !cert.pem)
        return tls_fault_set(f, TWS_ERR_ARGUMENT, false,
                             "a certificate has neither cert_file nor cert_pem");
    in = source_open(&cert, f);
    if (!in)
        return f->code;
    err = read_chain(ctx, in, cert.name, f);
    BIO_free(in);
    if (err)
        return err;
    in = source_open(&key, f);
    if (!in)
        return f->code;
    err = read_key(ctx, in, key.name, cert.name, c->password, f);
    BIO_free(in);
    return err;
}

/* ---- Authorities ---- */

static tws_err read_authorities(SSL_CTX *ctx, const struct source *s, bool name_them,
                                struct tls_fault *f)
{
    X509_STORE *store = SSL_CTX_get_cert_store(ctx);
    struct password none = {.text = NULL};
    BIO *in = source_open(s, f);
    size_t count = 0;
    bool ok = true;
    X509 *cert;

    if (!in)
        return f->code;
    while (ok && (cert = settle(PEM_read_bio_X509(in, NULL, give_password, &none)))) {
        ok = X509_STORE_add_cert(store, cert) == 1;
        if (ok && name_them)
            ok = SSL_CTX_add_client_CA(ctx, cert) == 1;
        X509_free(cert);
        count++;
    }
    BIO_free(in);
    if (!ok)
        return tls_fault_set(f, TWS_ERR_CERTIFICATE, true, "%s: an authority cannot be used",
                             s->name);
    if (!at_end())
        return tls_fault_set(f, TWS_ERR_CERTIFICATE, true, "%s: a certificate is damaged", s->name);
    if (count == 0)
        return tls_fault_set(f, TWS_ERR_CERTIFICATE, false,
                             "%s holds no certificate in PEM form (-----BEGIN CERTIFICATE-----)",
                             s->name);
    return TWS_OK;
}

static tws_err read_directory(SSL_CTX *ctx, const char *dir, struct tls_fault *f)
{
    struct stat st;

    if (stat(dir, &st) < 0 || !S_ISDIR(st.st_mode))
        return tls_fault_set(f, TWS_ERR_CERTIFICATE, false, "%s is no directory", dir);
    if (SSL_CTX_load_verify_dir(ctx, dir) != 1)
        return tls_fault_set(f, TWS_ERR_CERTIFICATE, true, "%s", dir);
    return TWS_OK;
}

tws_err tls_load_authorities(SSL_CTX *ctx, const struct tls_settings *s, bool name_them,
                             struct tls_fault *f)
{
    tws_err err = TWS_OK;

    ERR_clear_error();
    if (s->system_trust && SSL_CTX_set_default_verify_paths(ctx) != 1)
        return tls_fault_set(f, TWS_ERR_CERTIFICATE, true, "the system's trusted authorities");
    if (s->ca_file) {
        struct source file = {.file = s->ca_file, .name = s->ca_file};

        err = read_authorities(ctx, &file, name_them, f);
    }
    if (!err && s->ca_dir)
        err = read_directory(ctx, s->ca_dir, f);
    if (!err && s->ca_pem) {
        struct source memory = {
            .pem = s->ca_pem, .len = s->ca_pem_len, .name = "the authorities in memory"};

        err = read_authorities(ctx, &memory, name_them, f);
    }
    return err;
}

/* ---- Names ---- */

static enum tls_fit pattern_fit(const char *pattern, size_t len, const char *name)
{
    const char *dot = strchr(name, '.');

    if (strlen(name) == len && strncasecmp(pattern, name, len) == 0)
        return TLS_FIT_EXACT;
    if (len > 2 && pattern[0] == '*' && pattern[1] == '.' && dot && strlen(dot) == len - 1 &&
        strncasecmp(pattern + 1, dot, len - 1) == 0)
        return TLS_FIT_WILDCARD;
    return TLS_FIT_NONE;
}

static enum tls_fit string_fit(const ASN1_STRING *text, const char *name)
{
    return pattern_fit((const char *)ASN1_STRING_get0_data(text), (size_t)ASN1_STRING_length(text),
                       name);
}

static enum tls_fit common_name_fit(X509 *cert, const char *name)
{
    const X509_NAME *subject = X509_get_subject_name(cert);
    int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);

    if (at < 0)
        return TLS_FIT_NONE;
    return string_fit(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)), name);
}

enum tls_fit tls_certificate_fit(X509 *cert, const char *name)
{
    GENERAL_NAMES *names = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
    enum tls_fit best = TLS_FIT_NONE;
    bool any = false;

    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *n = sk_GENERAL_NAME_value(names, i);
        enum tls_fit fit;

        if (n->type != GEN_DNS)
            continue;
        any = true;
        fit = string_fit(n->d.dNSName, name);
        if (fit > best)
            best = fit;
    }
    GENERAL_NAMES_free(names);
    ERR_clear_error();
    return any ? best : common_name_fit(cert, name);
}
