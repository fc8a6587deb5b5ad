/* pki.h: certificates for tests, made fresh in memory. */
#ifndef TESTS_SUPPORT_PKI_H
#define TESTS_SUPPORT_PKI_H

#include <stdbool.h>
#include <stddef.h>

#include <openssl/evp.h>
#include <openssl/x509.h>

struct pki {
    X509 *x509;
    EVP_PKEY *pkey;
    char *cert, *key; /* PEM, zero-terminated */
};

struct pki_spec {
    const char *name;         /* the common name */
    const char *alt;          /* subjectAltName: "DNS:a.example,IP:127.0.0.1"; NULL: none */
    const struct pki *issuer; /* NULL: signs itself */
    bool ca;
    long begin, end;      /* seconds from now; 0: an hour ago, in a day */
    const char *password; /* encrypts the key; NULL: not */
};

/* Aborts the program when OpenSSL fails. */
void pki_make(struct pki *p, const struct pki_spec *spec);
void pki_free(struct pki *p);
/* Several texts, one behind the other; freed by the caller. */
char *pki_join(const char *a, const char *b);
/* Writes text into a new file in the directory; the path. */
void pki_write(const char *path, const char *text);

#endif
