/* plain C interface, usable from C, Fortran or ctypes */
#ifndef ROWSUM_API_H
#define ROWSUM_API_H

#ifdef __cplusplus
extern "C" {
#endif

int rs_init(int rows, int cols);
int rs_upload(const float *host);
int rs_compute(float *host_out);
void rs_shutdown(void);

#ifdef __cplusplus
}
#endif

#endif
