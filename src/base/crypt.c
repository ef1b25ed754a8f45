/* crypt.c - see crypt.h. */
#define _GNU_SOURCE
#include "base/crypt.h"
#include "base/file.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include <sys/stat.h>
#include <unistd.h>

/* The system's own: OpenSSL's would set itself up for it, 1.9 MB in every process that never encrypts. */
ramet_status ramet_random(void *out, size_t bytes, ramet_error *error) {
    RAMET_ASSERT(bytes <= 256, "%zu random bytes", bytes); /* as many as one call gives */
    if (getentropy(out, bytes) == 0) return RAMET_OK;
    return ramet_fail_errno(error, "the system gives no random bytes");
}

/* ---- keys from keys ---- */

/* OpenSSL takes inputs through pointers that are not const, and does not write to them. */
static OSSL_PARAM octets(const char *name, const void *data, size_t bytes) {
    return OSSL_PARAM_construct_octet_string(name, (void *)(uintptr_t)data, bytes);
}

ramet_status ramet_hkdf(const uint8_t key[RAMET_KEY_BYTES], const void *salt, size_t salt_bytes, const void *info,
                        size_t info_bytes, void *out, size_t bytes, ramet_error *error) {
    static char digest[] = "SHA256";
    const OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
        octets(OSSL_KDF_PARAM_KEY, key, RAMET_KEY_BYTES),
        octets(OSSL_KDF_PARAM_SALT, salt, salt_bytes),
        octets(OSSL_KDF_PARAM_INFO, info, info_bytes),
        OSSL_PARAM_construct_end(),
    };
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, OSSL_KDF_NAME_HKDF, NULL);
    EVP_KDF_CTX *context = kdf ? EVP_KDF_CTX_new(kdf) : NULL;
    bool is_done = context && EVP_KDF_derive(context, out, bytes, params) == 1;
    EVP_KDF_CTX_free(context);
    EVP_KDF_free(kdf);
    return is_done ? RAMET_OK : ramet_fail(error, RAMET_E_NO_MEMORY, "no memory to derive a key");
}

/* ---- sealing ---- */

static bool begin(EVP_CIPHER_CTX *context, const ramet_gcm *gcm, bool is_seal) {
    int n;
    return EVP_CipherInit_ex2(context, EVP_aes_256_gcm(), gcm->key, gcm->nonce, is_seal, NULL) == 1 &&
           (gcm->aad_bytes == 0 || EVP_CipherUpdate(context, NULL, &n, gcm->aad, (int)gcm->aad_bytes) == 1);
}

static ramet_status no_cipher(ramet_error *error) {
    return ramet_fail(error, RAMET_E_NO_MEMORY, "no memory for a cipher");
}

ramet_status ramet_gcm_seal(const ramet_gcm *gcm, const void *in, size_t bytes, void *out,
                            uint8_t out_tag[RAMET_GCM_TAG_BYTES], ramet_error *error) {
    RAMET_ASSERT(bytes <= INT32_MAX && gcm->aad_bytes <= INT32_MAX, "%zu bytes to seal", bytes);
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
    int n, rest;
    bool is_sealed = context && begin(context, gcm, true) && EVP_CipherUpdate(context, out, &n, in, (int)bytes) == 1 &&
                     EVP_CipherFinal_ex(context, (uint8_t *)out + n, &rest) == 1 &&
                     EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, RAMET_GCM_TAG_BYTES, out_tag) == 1;
    EVP_CIPHER_CTX_free(context);
    return is_sealed ? RAMET_OK : no_cipher(error);
}

ramet_status ramet_gcm_open(const ramet_gcm *gcm, const void *in, size_t bytes, void *out,
                            const uint8_t tag[RAMET_GCM_TAG_BYTES], ramet_error *error) {
    RAMET_ASSERT(bytes <= INT32_MAX && gcm->aad_bytes <= INT32_MAX, "%zu bytes to open", bytes);
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
    int n, rest;
    bool is_ready =
        context && begin(context, gcm, false) && EVP_CipherUpdate(context, out, &n, in, (int)bytes) == 1 &&
        EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, RAMET_GCM_TAG_BYTES, (void *)(uintptr_t)tag) == 1;
    bool is_genuine = is_ready && EVP_CipherFinal_ex(context, (uint8_t *)out + n, &rest) == 1;
    EVP_CIPHER_CTX_free(context);
    if (!is_ready) return no_cipher(error);
    return is_genuine ? RAMET_OK : ramet_fail(error, RAMET_E_AUTHENTICATION, "failed authentication");
}

bool ramet_equal_secret(const void *a, const void *b, size_t bytes) {
    return CRYPTO_memcmp(a, b, bytes) == 0;
}

void ramet_wipe(void *secret, size_t bytes) {
    OPENSSL_cleanse(secret, bytes);
}

/* ---- a key in a file ---- */

static ramet_status check_key_file(int fd, uint64_t bytes, const char *path, ramet_error *error) {
    struct stat s;
    if (fstat(fd, &s) != 0) return ramet_fail_errno(error, "cannot stat %s", path);
    if (s.st_mode & (S_IRWXG | S_IRWXO))
        return ramet_fail(error, RAMET_E_ARGUMENT, "others than its owner may use the key file (chmod 600 it): %s",
                          path);
    if (bytes != RAMET_KEY_BYTES)
        return ramet_fail(error, RAMET_E_ARGUMENT,
                          "a key is %d random bytes, this file has %llu (head -c 32 /dev/urandom makes one): %s",
                          RAMET_KEY_BYTES, (unsigned long long)bytes, path);
    return RAMET_OK;
}

ramet_status ramet_key_read(const char *path, uint8_t out[RAMET_KEY_BYTES], ramet_error *error) {
    int fd;
    uint64_t bytes;
    RAMET_TRY(ramet_file_open(path, &fd, &bytes, error));
    ramet_status status = check_key_file(fd, bytes, path, error);
    if (status == RAMET_OK) status = ramet_read_at(fd, out, RAMET_KEY_BYTES, 0, path, error);
    close(fd);
    return status;
}
