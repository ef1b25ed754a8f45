/* numerics_id.h - the committed id of contract version 1; ramet_numerics (ramet.h) computes this build's. */
#ifndef RAMET_ENGINE_NUMERICS_ID_H
#define RAMET_ENGINE_NUMERICS_ID_H

#define RAMET_NUMERICS_GOLDEN "01b3dff641df26719f3e57a90ce50f95"

#endif
